"""Sockets: the only package that imports `socket` and `selectors`."""
