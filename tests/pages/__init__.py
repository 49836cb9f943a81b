"""Reference pages that are made from the code: docs/errors.md and docs/metrics.md.

    python -m tests.pages            writes both

Each class of errors, each code a producer can meet and each metric has a remedy or a meaning here. The pages cannot be
made while one is missing, and tests/unit/pages/test_pages.py compares the pages in docs/ with what the code gives.
"""
