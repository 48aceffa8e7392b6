"""Tables, repository and the group-commit writer."""
