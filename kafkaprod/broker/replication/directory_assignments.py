"""What the controller must know of the log directories of a broker's replicas: one request in flight, again until it is
answered.

Not thread-safe; time is an argument. Source: Kafka, AssignmentsManager; KIP-858.
"""

from __future__ import annotations

import uuid
from typing import Final

from kafkaprod.broker.controller.events import AssignmentAnswer, AssignReplicas
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.protocol.error_codes import ErrorCode

MAX_PARTITIONS: Final = 2_250
"""The most of one request."""
RETRY_MS: Final = 100
TIMEOUT_MS: Final = 2_000


class DirectoryAssignments:
    """See the module docstring."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._wanted: dict[PartitionKey, uuid.UUID] = {}
        self._in_flight: AssignReplicas | None = None
        self._due_ms = 0

    def want(self, key: PartitionKey, directory: uuid.UUID) -> None:
        """Have the metadata name a replica's directory."""
        self._wanted[key] = directory

    def discard(self, key: PartitionKey) -> None:
        """Leave a replica as the metadata has it."""
        self._wanted.pop(key, None)

    def next_request(self, broker_epoch: int, now_ms: int) -> AssignReplicas | None:
        """Return what must be sent, None if there is nothing, or an answer is awaited."""
        if not self._wanted or now_ms < self._due_ms:
            return None
        some = dict(list(self._wanted.items())[:MAX_PARTITIONS])
        self._in_flight = AssignReplicas(self._broker_id, broker_epoch, some)
        self._due_ms = now_ms + TIMEOUT_MS
        return self._in_flight

    def on_answer(self, request: AssignReplicas, answer: AssignmentAnswer | ErrorCode, now_ms: int) -> None:
        """Take the answer to a request, or why there is none; one to an older request is ignored."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        if isinstance(answer, ErrorCode) or answer.error != ErrorCode.NONE:
            self._due_ms = now_ms + RETRY_MS
            return
        self._due_ms = 0
        for key, directory in request.directories.items():
            if self._wanted.get(key) == directory:  # an error is one of metadata that is on its way
                del self._wanted[key]

    def next_deadline_ms(self) -> int | None:
        """Return when `next_request` has something to say, None if never without a change."""
        return self._due_ms if self._wanted else None
