"""Other projects' own producer tests, run against kafkaprod.compat: see `__main__`."""
