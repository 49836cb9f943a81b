"""Quotas of clients, enforced: an answer names a time, and for as long no further request of its connection is read.

    producer_byte_rate  the bytes of Produce requests       consumer_byte_rate  the bytes of Fetch answers
    request_percentage  the time of the threads that handle requests, 100 for one thread; a second at most
    controller_mutation_rate  partitions made and deleted; `cluster.mutations` measures, and the answer names the time

A Fetch that is above a quota gets an empty answer, whose bytes do not count; the least of one batch comes once the time
is over. Of several times the longest counts. Source: Kafka, ClientQuotaManager, ClientRequestQuotaManager; KIP-13,
KIP-124, KIP-219. Belongs to the event loop.
"""

from __future__ import annotations

from typing import Final

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.meters import WINDOW_S, Meters, WindowedRate
from kafkaprod.broker.calls.request import ClientRequest, LastResponse, NoResponse, Ready
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.metadata.tokens import principal_parts
from kafkaprod.broker.settings.quotas import CONSUMER_BYTES, PRODUCER_BYTES, REQUEST_PERCENTAGE, QuotaTable
from kafkaprod.protocol.frames import encode_response
from kafkaprod.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkaprod.protocol.messages.produce import ProduceRequest
from kafkaprod.protocol.schema import Request, Response

_MAX_PERCENTAGE_WAIT_MS: Final = 1_000
_HEADER_BYTES: Final = 10  # of a request, without the client id
_PERCENT_OF_NS: Final = 100 / 1e9


class Throttle:
    """See the module docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._meters = {key: Meters(WindowedRate) for key in (PRODUCER_BYTES, CONSUMER_BYTES, REQUEST_PERCENTAGE)}

    @property
    def is_off(self) -> bool:
        """Whether no one has a quota."""
        return not self._broker.quotas.table.keys

    @property
    def counts_time(self) -> bool:
        """Whether the time of handlers counts for anyone."""
        return REQUEST_PERCENTAGE in self._broker.quotas.table.keys

    def limit(self, request: ClientRequest[Request]) -> None:
        """Have a Fetch return no more than its quota lets it have at once, beyond the least of one batch."""
        body = request.body
        if isinstance(body, FetchRequest):
            found = self._broker.quotas.table.find(CONSUMER_BYTES, _user_of(request), request.client_id)
            if found is not None:
                body.max_bytes = min(body.max_bytes, int(found.quota * WINDOW_S))
                body.min_bytes = min(body.min_bytes, body.max_bytes)

    def charge(self, request: ClientRequest[Request], ready: Ready, body_bytes: int, busy_ns: int) -> tuple[Ready, int]:
        """Note what a request has used.

        Args:
            request: The request.
            ready: What becomes of it.
            body_bytes: Its bytes behind the header.
            busy_ns: For how long threads were busy with it.

        Returns:
            What becomes of it now, and how long its connection must wait, in milliseconds.
        """
        if isinstance(ready, LastResponse):
            return ready, 0
        table, now_ms = self._broker.quotas.table, self._broker.clock.now_ms()
        body, wait_ms = request.body, 0
        if isinstance(body, ProduceRequest):
            size = _HEADER_BYTES + len(request.client_id.encode()) + body_bytes
            wait_ms = self._use(table, PRODUCER_BYTES, request, size, now_ms)
        answer_bytes = _size_of(ready, request.version) if isinstance(body, FetchRequest) else 0
        if answer_bytes:
            wait_ms = self._use(table, CONSUMER_BYTES, request, answer_bytes, now_ms)
        if not isinstance(ready, NoResponse):
            of_time_ms = self._use(table, REQUEST_PERCENTAGE, request, busy_ns * _PERCENT_OF_NS, now_ms)
            wait_ms = max(wait_ms, min(of_time_ms, _MAX_PERCENTAGE_WAIT_MS))
        wait_ms = max(wait_ms, _named_wait(ready))
        if wait_ms and answer_bytes:
            self._use(table, CONSUMER_BYTES, request, -answer_bytes, now_ms)
            ready = FetchResponse(responses=[])
        if wait_ms:
            name_wait(ready, request.version, wait_ms)
        return ready, wait_ms

    def _use(self, table: QuotaTable, key: str, request: ClientRequest[Request], amount: float, now_ms: int) -> int:
        """Note a use of what there is a quota of; return for how long the client must wait."""
        user = _user_of(request)
        found = table.find(key, user, request.client_id)
        if found is None:
            return 0
        meter = self._meters[key].of(found.entity, user, now_ms)
        meter.add(amount, now_ms)
        return meter.wait_ms(found.quota, now_ms)


def _named_wait(ready: Ready) -> int:
    """Return the time that the handler has written into its answer, for changes of topics."""
    return getattr(ready, "throttle_time_ms", 0)


def name_wait(ready: Ready, version: int, wait_ms: int) -> None:
    """Write the time into an answer, if that has a place for it and names no longer one."""
    response = ready.response if isinstance(ready, FileResponse) else ready
    if isinstance(response, Response) and any(
        field.name == "throttle_time_ms" and field.is_in(version) for field in type(response).fields
    ):
        response.throttle_time_ms = max(response.throttle_time_ms, wait_ms)  # type: ignore[attr-defined]


def _user_of(request: ClientRequest[Request]) -> str:
    return principal_parts(request.principal)[1]


def _size_of(ready: Ready, version: int) -> int:
    """Return the bytes of an answer as Kafka counts them: the body, and four."""
    response = ready.response if isinstance(ready, FileResponse) else ready
    if not isinstance(response, Response):
        return 0
    header_bytes = 5 if response.is_flexible(version) else 4
    return sum(len(memoryview(part)) for part in encode_response(response, version, 0)) - header_bytes
