"""Plugins and conftest files for other projects' tests; each a module of its own: `tests` is their package there."""
