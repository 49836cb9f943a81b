"""Consumers of a simulated cluster, through the broker's own handlers of Fetch and ListOffsets.

Every read goes to the checker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkaprod.broker.calls.file_records import FileResponse, is_stand_in
from kafkaprod.broker.calls.request import ClientRequest, Ready
from kafkaprod.broker.handlers.list_offsets import LATEST
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkaprod.protocol.schema import Request
from tests.simulation.checker import Checker
from tests.simulation.logs import SimulatedSlice
from tests.simulation.nodes import BrokerNode
from tests.simulation.world import World

FETCH_VERSION = 17
OFFSETS_VERSION = 7
PATIENCE_MS = 400
PAUSE_MS = 30
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Found = tuple[PartitionKey, PartitionData, bytes]
"""A partition, what a fetch says of it, and its records."""


def fetch_request(offsets: Mapping[PartitionKey, int], **limits: Any) -> FetchRequest:
    """Return a fetch of partitions from offsets on, with `max_wait_ms`, `min_bytes` or `isolation_level`."""
    topics = [
        FetchTopic(
            topic_id=key[0],
            partitions=[
                FetchPartition(
                    partition=key[1], fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
                )
            ],
        )
        for key, offset in offsets.items()
    ]
    return FetchRequest(max_bytes=64 << 20, topics=topics, **limits)


def found_in(ready: Ready) -> list[Found]:
    """Return what a fetch found in its partitions, in their order; nothing for one that was refused as a whole."""
    if not isinstance(ready, FileResponse):
        return []
    ranges = iter(ready.ranges)
    found = []
    response: Any = ready.response
    for topic in response.responses:
        for answer in topic.partitions:
            is_range = answer.records is not None and is_stand_in(answer.records)
            data = next(ranges).read() if is_range else bytes(answer.records or b"")
            found.append(((topic.topic_id, answer.partition_index), answer, data))
    return found


def asked_by(name: str, body: Request, version: int) -> ClientRequest[Any]:
    """Return a consumer's request."""
    return ClientRequest(body, version, name, "10.0.1.2")


class SimulatedConsumer:
    """Reads partitions from whoever answers, and waits for nothing.

    It asks all brokers, as clients with old metadata do: those that do not lead must refuse.
    """

    def __init__(
        self, world: World, brokers: dict[int, BrokerNode], checker: Checker, keys: Iterable[PartitionKey]
    ) -> None:
        self.world = world
        self.brokers = brokers
        self.checker = checker
        self.offsets = dict.fromkeys(keys, 0)
        self.process = world.process("consumer")
        self.process.is_up = True
        self._poll()

    def _poll(self) -> None:
        for broker in self.brokers.values():
            if broker.process.is_up:
                self._fetch(broker)
                self._find_ends(broker)
        self.world.in_process(self.process, 20, self._poll)

    def _fetch(self, broker: BrokerNode) -> None:
        found = found_in(self._ask(broker, fetch_request(self.offsets), FETCH_VERSION))
        assert [key for key, _, _ in found] == list(self.offsets)
        for key, answer, data in found:
            if data and not answer.error_code:
                self.offsets[key] = take(self.checker, key, data, answer)

    def _find_ends(self, broker: BrokerNode) -> None:
        """Ask where the partitions end, as consumers without an offset do."""
        known = [(key, broker.follower.image.topics.get(key[0])) for key in self.offsets]
        wanted = [(key, topic.name) for key, topic in known if topic is not None]
        if not wanted:
            return
        topics = [
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=key[1], timestamp=LATEST)])
            for key, name in wanted
        ]
        outcome: Any = self._ask(broker, ListOffsetsRequest(topics=topics), OFFSETS_VERSION)
        for (key, name), topic in zip(wanted, outcome.topics, strict=True):
            (answer,) = topic.partitions
            assert (topic.name, answer.partition_index) == (name, key[1])
            if not answer.error_code:
                self.checker.found_end(key, answer.leader_epoch, answer.offset)

    def _ask(self, broker: BrokerNode, body: Request, version: int) -> Ready:
        """Have a broker's handler answer a request at once."""
        ready: list[Ready] = []
        broker.handler_broker.handle(asked_by("consumer", body, version), ready.append)
        return ready[0]


class WaitingConsumer:
    """Reads each partition from its leader, as its metadata has it, with fetches that wait there for records.

    It has one fetch under way to each broker, which may be lost on the way, and its answer, too.

    Attributes:
        offsets: Where it reads next.
    """

    isolation_level = READ_UNCOMMITTED

    def __init__(
        self, world: World, brokers: dict[int, BrokerNode], checker: Checker, name: str, keys: Iterable[PartitionKey]
    ) -> None:
        self.world = world
        self.brokers = brokers
        self.checker = checker
        self.offsets = dict.fromkeys(keys, 0)
        self.process = world.process(name)
        self.process.is_up = True
        self._attempts = dict.fromkeys(brokers, 0)
        self._limits = {
            "min_bytes": world.random.choice((1, 1, 60, 300)),
            "max_wait_ms": world.random.choice((20, 100, 500)),
            "isolation_level": self.isolation_level,
        }
        for broker_id in brokers:
            self._again(broker_id)

    def _again(self, broker_id: int) -> None:
        self._attempts[broker_id] += 1
        attempt = self._attempts[broker_id]
        offsets = {key: self.offsets[key] for key in self._led_by(broker_id)}
        if not offsets:
            self.world.in_process(self.process, PAUSE_MS, lambda: self._again(broker_id))
            return
        broker = self.brokers[broker_id]
        request = asked_by(self.process.name, fetch_request(offsets, **self._limits), FETCH_VERSION)

        def answered(ready: Ready) -> None:
            if self._attempts[broker_id] == attempt:
                pause_ms = 0 if self._take(found_in(ready)) else PAUSE_MS
                self.world.in_process(self.process, pause_ms, lambda: self._again(broker_id))

        def deliver() -> None:
            if broker.server.is_serving:
                broker.handler_broker.handle(
                    request, lambda ready: self.world.send(broker.process, self.process, lambda: answered(ready))
                )

        def give_up() -> None:
            if self._attempts[broker_id] == attempt:
                self._again(broker_id)

        self.world.send(self.process, broker.process, deliver)
        self.world.in_process(self.process, self._limits["max_wait_ms"] + PATIENCE_MS, give_up)

    def _led_by(self, broker_id: int) -> list[PartitionKey]:
        """Return the partitions that a broker leads, by the metadata of some broker, which may be old."""
        image = self.world.random.choice(list(self.brokers.values())).follower.image
        partitions = image.partitions
        return [key for key in self.offsets if key in partitions and partitions[key].leader == broker_id]

    def _take(self, found: list[Found]) -> bool:
        """Take what was read; return whether each partition answered without an error."""
        for key, answer, data in found:
            if data and not answer.error_code:
                self.offsets[key] = max(self.offsets[key], self._read(key, data, answer))
        return bool(found) and not any(answer.error_code for _, answer, _ in found)

    def _read(self, key: PartitionKey, data: bytes, answer: PartitionData) -> int:
        """Show what was read; return the offset behind it."""
        return take(self.checker, key, data, answer)


def take(checker: Checker, key: PartitionKey, data: bytes, answer: PartitionData) -> int:
    """Show the checker what a fetch read; return the offset behind it."""
    found = SimulatedSlice.of(data)
    end_offset = found.first_offset + len(found.values)
    checker.fetched(key, end_offset, answer.high_watermark)
    for offset, value in enumerate(found.values, found.first_offset):
        checker.read(key, offset, value)
    return end_offset
