"""Pure: which models fit on which cards, with which engine arguments, and why not."""
