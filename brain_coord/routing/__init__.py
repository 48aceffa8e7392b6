"""Pure: both routers, privacy, weights, sentences and the decision record."""
