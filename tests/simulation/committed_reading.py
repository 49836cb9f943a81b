"""Consumers of real batches: those that read committed records only, and those that read all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kafkaprod.broker.handlers.list_offsets import LATEST
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.storage.format.control_batch import parse_marker
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.protocol.messages.fetch import PartitionData
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkaprod.storage.batch_header import HEADER_BYTES, BatchHeader, parse_header
from tests.simulation.checker import Checker
from tests.simulation.ledger import Ledger
from tests.simulation.nodes import BrokerNode
from tests.simulation.reading import OFFSETS_VERSION, READ_COMMITTED, READ_UNCOMMITTED, WaitingConsumer, asked_by
from tests.simulation.world import World

ENDS_MS = 40


def batches_in(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a fetch."""
    left = memoryview(data)
    while len(left) >= HEADER_BYTES:
        header = parse_header(left)
        yield header, left[: header.size_bytes]
        left = left[header.size_bytes :]


class BatchConsumer(WaitingConsumer):
    """Reads all records, and shows the checker what stands for them in the logs."""

    isolation_level = READ_UNCOMMITTED

    def _read(self, key: PartitionKey, data: bytes, answer: PartitionData) -> int:
        position = self.offsets[key]
        for header, batch in batches_in(data):
            self.checker.fetched(key, header.last_offset + 1, answer.high_watermark)
            for record in iterate_records(batch) if not header.is_control else ():
                self.checker.read(key, record.offset, int(bytes(record.value or b"").partition(b" ")[0]))
            position = max(position, header.last_offset + 1)
        return position


class CommittedConsumer(BatchConsumer):
    """Reads committed records, leaving out those that the list of aborted transactions names, as clients do."""

    isolation_level = READ_COMMITTED

    def __init__(
        self,
        world: World,
        brokers: dict[int, BrokerNode],
        checker: Checker,
        ledger: Ledger,
        name: str,
        keys: Iterable[PartitionKey],
    ) -> None:
        self._ledger = ledger
        super().__init__(world, brokers, checker, name, keys)
        self._find_ends()

    def _read(self, key: PartitionKey, data: bytes, answer: PartitionData) -> int:
        self._ledger.fetched(key, answer.high_watermark, answer.last_stable_offset)
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
        aborting: set[int] = set()
        position = self.offsets[key]
        for header, batch in batches_in(data):
            self.checker.fetched(key, header.last_offset + 1, answer.last_stable_offset)
            while aborted and aborted[0][0] <= header.last_offset:
                aborting.add(aborted.pop(0)[1])
            if header.is_control:
                marker = parse_marker(batch, header)
                if marker is not None and not marker.is_commit:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                for record in iterate_records(batch):
                    if record.offset >= position:
                        value = int(bytes(record.value or b"").partition(b" ")[0])
                        self.checker.read(key, record.offset, value)
                        self._ledger.read(self.process.name, key, value)
            position = max(position, header.last_offset + 1)
        return position

    def _find_ends(self) -> None:
        """Ask each broker where the committed records end, as consumers without an offset do."""
        for broker in self.brokers.values():
            if broker.process.is_up:
                self._find_ends_at(broker)
        self.world.in_process(self.process, ENDS_MS, self._find_ends)

    def _find_ends_at(self, broker: BrokerNode) -> None:
        known = [(key, broker.follower.image.topics.get(key[0])) for key in self.offsets]
        wanted = [(key, topic.name) for key, topic in known if topic is not None]
        topics = [
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=key[1], timestamp=LATEST)])
            for key, name in wanted
        ]
        ready: list[Any] = []
        request = ListOffsetsRequest(topics=topics, isolation_level=self.isolation_level)
        broker.handler_broker.handle(asked_by(self.process.name, request, OFFSETS_VERSION), ready.append)
        for (key, _), topic in zip(wanted, ready[0].topics, strict=True):
            (answer,) = topic.partitions
            if not answer.error_code:
                self._ledger.found_end(key, answer.leader_epoch, answer.offset)
