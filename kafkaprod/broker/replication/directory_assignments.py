"""What the controller must know of the log directories of a broker's replicas: one request in flight, again until it is
answered.

Not thread-safe; time is an argument. Source: Kafka, AssignmentsManager; KIP-858.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from kafkaprod.protocol.schema import Response

MAX_PARTITIONS: Final = 2_250
"""The most of one request."""
RETRY_MS: Final = 100
TIMEOUT_MS: Final = 2_000


class DirectoryAssignments:
    """See the module docstring."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._wanted: dict[PartitionKey, uuid.UUID] = {}
        self._in_flight: AssignReplicasToDirsRequest | None = None
        self._sent: dict[PartitionKey, uuid.UUID] = {}
        self._due_ms = 0

    def want(self, key: PartitionKey, directory: uuid.UUID) -> None:
        """Have the metadata name a replica's directory."""
        self._wanted[key] = directory

    def discard(self, key: PartitionKey) -> None:
        """Leave a replica as the metadata has it."""
        self._wanted.pop(key, None)

    def next_request(self, broker_epoch: int, now_ms: int) -> AssignReplicasToDirsRequest | None:
        """Return what must be sent, None if there is nothing, or an answer is awaited."""
        if not self._wanted or now_ms < self._due_ms:
            return None
        self._sent = dict(list(self._wanted.items())[:MAX_PARTITIONS])
        self._in_flight = AssignReplicasToDirsRequest(
            broker_id=self._broker_id, broker_epoch=broker_epoch, directories=_by_directory(self._sent)
        )
        self._due_ms = now_ms + TIMEOUT_MS
        return self._in_flight

    def on_answer(self, request: AssignReplicasToDirsRequest, answer: Response | None, now_ms: int) -> None:
        """Take the answer to a request, None if there is none; one to an older request is ignored."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        if not isinstance(answer, AssignReplicasToDirsResponse) or answer.error_code != ErrorCode.NONE:
            self._due_ms = now_ms + RETRY_MS
            return
        self._due_ms = 0
        for key, directory in self._sent.items():
            if self._wanted.get(key) == directory:  # an error is one of metadata that is on its way
                del self._wanted[key]

    def next_deadline_ms(self) -> int | None:
        """Return when `next_request` has something to say, None if never without a change."""
        return self._due_ms if self._wanted else None


def _by_directory(wanted: Mapping[PartitionKey, uuid.UUID]) -> list[AssignedDirectory]:
    found: dict[uuid.UUID, dict[uuid.UUID, list[AssignedPartition]]] = defaultdict(lambda: defaultdict(list))
    for (topic_id, index), directory in wanted.items():
        found[directory][topic_id].append(AssignedPartition(partition_index=index))
    return [
        AssignedDirectory(
            id=directory,
            topics=[AssignedTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )
        for directory, topics in found.items()
    ]
