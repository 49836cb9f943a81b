# For the compiled modules only.
