"""What holds records outside of the engines, and gives them away before a producer or the program ends.

An engine waits for the records that it has. Who keeps some of its own, as a handler with a queue of log lines does,
enters here: `flush()` and `close()` of its producer take them, and so does the end of the program, before the engines
end; what it could not give away is written to stderr afterwards.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from typing import Any, Final, Protocol

HAND_OVER_S: Final = 5.0  # longest wait of a producer that flushes or closes


class Holder(Protocol):
    """Keeps records that no producer has yet. It must allow weak references."""

    def hand_over(self, timeout_s: float) -> None:
        """Give the producer what is kept now, waiting no longer than that."""
        ...

    def lost(self) -> str | None:
        """Return a sentence about records that no producer took, once; None: there are none."""
        ...


_holders: weakref.WeakSet[Any] = weakref.WeakSet()
_of_producers: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def enter(holder: Holder, producer: object = None) -> None:
    """Have a holder asked before the program ends, and by the producer that it gives its records to."""
    _holders.add(holder)
    if producer is not None:
        with contextlib.suppress(TypeError):  # an object that allows no weak references: only the program's end is left
            _of_producers.setdefault(producer, weakref.WeakSet()).add(holder)


def hand_over_to(producer: object, timeout_s: float | None) -> None:
    """Have everything given to a producer that is kept for it, in HAND_OVER_S at most; not by a holder's own thread."""
    if not _of_producers:
        return
    for holder in list(_of_producers.get(producer, ())):
        holder.hand_over(HAND_OVER_S if timeout_s is None else min(timeout_s, HAND_OVER_S))


def hand_over_all(timeout_s: float) -> None:
    """Have everything given away, because the program ends: all holders at once."""
    threads = [threading.Thread(target=holder.hand_over, args=(timeout_s,), daemon=True) for holder in list(_holders)]
    if len(threads) == 1:
        threads[0].run()
        return
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:  # the program gives no more threads
            thread.run()
    for thread in threads:
        if thread.ident is not None:
            thread.join(timeout_s)


def report_losses() -> None:
    """Write to stderr what was not given away: the handlers of logging may be gone."""
    for holder in list(_holders):
        say_loss(holder)


def say_loss(holder: Holder) -> None:
    """Write a holder's sentence about its losses to stderr, if there is one."""
    text = holder.lost()
    if text is not None and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe or file
            print(text, file=sys.stderr)
