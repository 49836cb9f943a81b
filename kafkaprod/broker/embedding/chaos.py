"""Faults that a seed draws, one after another, until a test has seen enough."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError
from kafkaprod.errors import ConfigError, IllegalStateError

KINDS = ("kill", "pause", "cut", "one-way cut", "isolate", "roll", "power cut")
"""The faults of `chaos`."""


class Victim(Protocol):
    """What chaos breaks: `ClusterFaults`."""

    @property
    def brokers(self) -> list[ClusterBroker]:
        """All brokers."""

    def do_fault(
        self, kind: str, broker: ClusterBroker, dice: random.Random, wait: Callable[[], object] = lambda: None
    ) -> None:
        """Do one fault, undo it, and wait until all is in sync."""


class Chaos:
    """Breaks a cluster on a thread of its own until `end`, which the end of a `with` block calls.

    Attributes:
        done: The faults so far, in words; what the `with` statement gives.
    """

    def __init__(self, cluster: Victim, seed: int, kinds: Sequence[str], period_ms: int) -> None:
        """Start.

        Raises:
            ConfigError: An argument has a wrong type or value.
        """
        arguments.whole("seed", seed, -arguments.INT64_MAX)
        self._kinds = [
            arguments.choice("kinds", kind, KINDS) for kind in arguments.elements("kinds", kinds, str(KINDS))
        ]
        if not self._kinds:
            raise ConfigError(f"kinds is empty: choose from {', '.join(KINDS)}")
        self._period_s = arguments.milliseconds("period_ms", period_ms) / 1000
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._is_over = False
        self._pause = Waiter()  # of the thread; ended early
        self._error: Exception | None = None
        self.done: list[str] = []
        self._thread = threading.Thread(target=self._run, name="kafkaprod-chaos", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop after the fault in progress: the cluster is whole and in sync then. Idempotent.

        Raises:
            EmbeddedBrokerError: The cluster did not come into sync after a fault.
        """
        self._is_over = True
        self._pause.wake()
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while not self._is_over:
            kind, broker = self._dice.choice(self._kinds), self._dice.choice(self._cluster.brokers)
            self.done.append(f"{kind} of broker {broker.id}")
            try:
                self._cluster.do_fault(kind, broker, self._dice, self._wait)
            except (EmbeddedBrokerError, IllegalStateError, OSError) as error:
                self._error = error
                return
            self._wait()

    def _wait(self) -> None:
        if not self._is_over:
            self._pause.wait(self._period_s)

    def __enter__(self) -> list[str]:
        return self.done

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
