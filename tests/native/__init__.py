"""Small Cython modules that let tests look at C structs of the core; built on first use into tests/.cache."""
