"""One module per resource class: estimate and execute."""
