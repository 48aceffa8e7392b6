"""The websocket endpoints that nodes dial: one link and a pool of slots each."""
