"""Long runs by hand, again and again with other seeds: kills, cut connections, power cuts, attacks, comparisons.

Each module is a program, `python -m tests.campaigns.<name>`; tests run a short piece of most.
"""
