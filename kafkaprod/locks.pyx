"""Locks that no exception of a signal handler leaves locked.

From Python 3.14 on, `with lock:` is two steps for the interpreter: it takes the lock, then looks for signals, and only then
begins the block whose end releases the lock. If a handler raises in between (Ctrl-C, a soft time limit), the lock stays
locked, and the next thread that wants it, mostly the sender's, hangs. No form in Python is right on every version, for any
call may end with such an exception. Compiled code is: the interpreter looks for signals between two steps of Python code,
never between two lines of this module.

So whatever a thread of the application may run takes a lock here; `tests/architecture/test_interruptions.py` finds what
does not. A `threading.Event` or `Condition` has such a lock inside: use a Waiter of `_core.machine.waking`, or a
`queue.SimpleQueue`.
"""

from functools import wraps


def locked(method):
    """Let a method run with its object's `_lock` held, a `threading.RLock`.

    Not a plain Lock: a signal handler may interrupt the method and call it, or its sibling, in the same thread.
    """

    @wraps(method)
    def call(self, *args, **kwargs):
        lock = self._lock
        lock.acquire()
        try:
            return method(self, *args, **kwargs)
        finally:
            lock.release()

    return call
