"""The outcome of records, and waiting for it.

block        the outcome of a block of rows; imports NumPy
snapshot     the outcomes of rows in another process; imports NumPy
shown        the outcome of many rows as a table in HTML, for notebooks; imports NumPy
batch        the outcome of a batch, and the failures that the program has not seen
write        the outcome of a write that happens once
rows         what the outcomes of a block and a table have in common
holders      what keeps records outside of the engines, and gives them away before a producer or the program ends
record_wait  what a task of an event loop awaits
"""
