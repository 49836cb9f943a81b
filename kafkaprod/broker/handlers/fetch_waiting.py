"""A fetch of many partitions that waits for records: it looks only at those that move, a slice of time in each turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkaprod.broker.calls.purgatory import DelayedOperation
from kafkaprod.broker.calls.request import ClientRequest, Deferred, Outcome
from kafkaprod.broker.calls.steps import FIRST_SLICE_MS, pass_on
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.fetch_reading import least_bytes, look_at
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest
from kafkaprod.structs import TopicPartition


class WaitingFetch:
    """See the module docstring. The event loop owns it.

    Args:
        broker: Has the logs and the purgatory.
        request: What is wanted.
        wanted: The partitions of the request that have a name.
        read: Reads all of them, for the answer.
    """

    def __init__(
        self,
        broker: Broker,
        request: ClientRequest[FetchRequest],
        wanted: Mapping[TopicPartition, FetchPartition],
        read: Callable[[], Outcome],
    ) -> None:
        self._broker = broker
        self._request = request
        self._wanted = wanted
        self._read = read
        self._deferred = Deferred()
        self._moved: dict[TopicPartition, None] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._bytes = 0
        self._is_looking_later = self._is_over = False
        self._operation: DelayedOperation

    def begin(self, deadline_ms: int) -> Deferred:
        """Wait until there is enough, at the latest until the deadline; return what gets the answer."""
        purgatory = self._broker.purgatory
        self._operation = purgatory.watch(list(self._wanted), deadline_ms, self._try, self._note_moved)
        if not self._is_over:
            self._deferred.on_abandon = self._abandon
        return self._deferred

    def _note_moved(self, keys: Iterable[TopicPartition]) -> None:
        self._moved.update(dict.fromkeys(keys))

    def _try(self, is_expired: bool) -> bool:
        if is_expired:
            self._answer()
        elif not self._is_looking_later:
            self._look()
        return self._is_over

    def _look(self) -> None:
        """Look at what has moved until the slice is over; the rest in a later turn."""
        clock = self._broker.clock
        ends_ms = clock.now_ms() + FIRST_SLICE_MS
        while self._moved:
            key, _ = self._moved.popitem()
            look = look_at(self._broker, self._request, key.topic, self._wanted[key])
            self._bytes += look.bytes_read - self._sizes.get(key, 0)
            self._sizes[key] = look.bytes_read
            if look.is_final or self._bytes >= least_bytes(self._broker, self._request):
                self._answer()
            elif self._moved and clock.now_ms() >= ends_ms:
                self._is_looking_later = True
                self._broker.post(self._look_later)
                return

    def _look_later(self) -> None:
        self._is_looking_later = False
        if self._is_over:
            return
        self._look()
        if self._is_over:
            self._broker.purgatory.cancel(self._operation)

    def _answer(self) -> None:
        self._is_over = True
        self._moved.clear()
        pass_on(self._read(), self._deferred)

    def _abandon(self) -> None:
        self._is_over = True
        self._moved.clear()
        self._broker.purgatory.cancel(self._operation)
