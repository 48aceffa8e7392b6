"""The operator's side of the site: one secret, a session by cookie, and what only an operator may see and do."""
