"""Asking a cluster: topics, options, offsets, records; for the commands and the loader. Not a consumer."""
