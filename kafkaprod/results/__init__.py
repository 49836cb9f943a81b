"""The outcome of records, and waiting for it.

batch     the outcome of a batch, and the failures that the program has not seen
block     the outcome of a block of rows; imports NumPy
rows      what the outcomes of a block and a table have in common
waiting   one thread waits, another wakes it
"""
