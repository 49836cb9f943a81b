"""What the processor, the kernel and the interpreter offer: locks, time, caches and the GIL.

prefetch     cache hints; cache_lines has their size
gil_turns    hands the GIL to a sender thread that waits for it
cache_lines  memory that begins with a cache line
types        types that only C code may instantiate
waking       how an application's thread and the sender wait for each other
lock         four bytes and a futex
clock        time without the GIL
"""
