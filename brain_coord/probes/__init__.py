"""Work the coordinator gives to nodes on its own account, over the same path as a customer's: the join benchmark."""
