"""What the processor, the kernel and the interpreter offer: locks, time, caches and the GIL.

lock         four bytes and a futex
clock        time without the GIL
prefetch     cache hints; cache_lines has their size
gil_turns    hands the GIL to a sender thread that waits for it
"""
