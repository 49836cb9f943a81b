"""Moves partitions between log directories: one thread, as fast as the option lets it.

`replica.alter.log.dirs.io.max.bytes.per.second` bounds what is copied in a second; after each step the thread rests for
as long as the step's bytes may take.
"""

from __future__ import annotations

import threading

from kafkaprod.broker.cluster.broker import Broker

_STEP_BYTES = 1024 * 1024
_LEAST_PAUSE_S = 0.01  # while a compaction runs, or clients are faster


class Mover:
    """See the module docstring.

    Args:
        broker: Whose partitions.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafkaprod-broker-mover", daemon=True)

    def start(self) -> None:
        """Begin, if there is more than one directory."""
        if len(self._broker.log_dirs.paths) > 1:
            self._thread.start()

    def stop(self) -> None:
        """End; waits for the step that runs."""
        self._stop.set()
        self._broker.log_dirs.moves.wait.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        log_dirs = self._broker.log_dirs
        while not self._stop.is_set():
            if not log_dirs.moves:
                log_dirs.moves.wait.wait()
                log_dirs.moves.wait.clear()
                continue
            rate = self._broker.config.log_dir_move_bytes_per_s
            copied = log_dirs.step(min(_STEP_BYTES, rate))
            pause_s = copied / rate if copied else _LEAST_PAUSE_S
            if log_dirs.moves and pause_s > _LEAST_PAUSE_S / 10:
                self._stop.wait(pause_s)
