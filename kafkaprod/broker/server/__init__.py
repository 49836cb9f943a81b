"""The broker's front: sockets, sessions, and the way of a request to its handler."""
