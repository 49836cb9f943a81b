"""Helpers for the tests of other clients' interfaces."""
