"""Test suites of other projects, run against the embedded broker: see `__main__`."""
