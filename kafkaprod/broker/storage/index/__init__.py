"""Sparse lookups beside a segment: by offset, by time, and aborted transactions."""
