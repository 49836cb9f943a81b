"""The clients that are compared, kafkaprod among them: each a program that sends one task's records and prints figures.

Python clients: ``python -m benchmarks.peers.<name> KEY=VALUE ...`` with the fields of `task.Task`. Clients of other
languages are in ``java``, ``go`` and ``rust``, take the same arguments, and are built by `build`. A client prints one
line of JSON, the fields of `task.Figures`, and sends the same records as the others: they come from a file.
"""
