"""Clients over a link of a given round trip and rate: real TCP between two network namespaces.

link.c     the wire: TUN devices in two namespaces
wire.py    sets it up, and says why it cannot
clients.py producers with their default options, which send for a while and say what became of it
matrix.py  `python -m benchmarks.link --json OUT`: round trips, rates and partitions crossed
table.py   its table, a section of docs/figures.md
"""
