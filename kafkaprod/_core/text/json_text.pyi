"""Nothing for Python here: the module is cimported."""
