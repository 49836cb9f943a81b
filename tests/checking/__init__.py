"""What `tests.check` knows of the tree: which file uses which, which tests a change reaches, what tests cost."""
