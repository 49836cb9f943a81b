"""Writes that are run again.

repeated_write  a process that makes a write, and is killed before or behind one of its steps
"""
