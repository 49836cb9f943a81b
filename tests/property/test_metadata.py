"""Metadata against a model: brokers that lag answer out of order, hints come in between, the topic is made anew."""

import uuid
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkaprod.errors import ConnectionLostError
from kafkaprod.metadata import Metadata
from kafkaprod.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.config import unchecked_config

NODES = [1, 2, 3]
PARTITIONS = st.integers(0, 3)


class LaggingCluster(RuleBasedStateMachine):
    """The true cluster keeps its history; an answer may tell any state of the past."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = Metadata(unchecked_config(), random=lambda: 0.5)
        self.metadata.add_topic("t", 0)
        self.now_ms = 0
        self.topic_id = uuid.uuid4()
        self.truth = {0: (1, 0)}  # partition -> leader, epoch
        self.history: list[tuple[uuid.UUID, dict[int, tuple[int, int]]]] = []
        self.seen: dict[tuple[uuid.UUID, int], int] = {}  # the highest epoch shown to the core
        self.waited: list[int] = []
        self.remember()

    def remember(self) -> None:
        self.history.append((self.topic_id, dict(self.truth)))

    @rule(partition=PARTITIONS, leader=st.sampled_from(NODES))
    def elect(self, partition: int, leader: int) -> None:
        if partition in self.truth:
            self.truth[partition] = (leader, self.truth[partition][1] + 1)
            self.remember()

    @rule()
    def grow(self) -> None:
        if len(self.truth) < 4:
            self.truth[len(self.truth)] = (1, 0)
            self.remember()

    @rule()
    def make_anew(self) -> None:
        self.topic_id = uuid.uuid4()
        self.truth = {0: (1, 0)}
        self.history.clear()  # a broker that shows the deleted topic again is indistinguishable from another deletion
        self.remember()

    @rule(ms=st.integers(0, 400))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def want(self) -> None:
        self.metadata.request_update()

    @rule(back=st.integers(0, 5))
    @precondition(lambda self: self.metadata.next_refresh_ms(self.now_ms) == 0)
    def answer(self, back: int) -> None:
        topic_id, partitions = self.history[max(len(self.history) - 1 - back, 0)]
        self.metadata.make_request(self.now_ms)
        self.metadata.on_response(response(topic_id, partitions), 13, self.now_ms)
        assert self.metadata.next_refresh_ms(self.now_ms) >= 80

    @rule()
    @precondition(lambda self: self.metadata.next_refresh_ms(self.now_ms) == 0)
    def fail(self) -> None:
        self.metadata.make_request(self.now_ms)
        self.metadata.on_failure(ConnectionLostError("cut"), self.now_ms)
        assert self.metadata.next_refresh_ms(self.now_ms) >= 80

    @rule(partition=PARTITIONS, back=st.integers(0, 5))
    def hint(self, partition: int, back: int) -> None:
        topic_id, partitions = self.history[max(len(self.history) - 1 - back, 0)]
        info = self.metadata.snapshot.topics.get("t")
        if info is not None and info.topic_uuid == topic_id and partition in partitions:
            leader, epoch = partitions[partition]
            endpoint: Any = SimpleNamespace(node_id=leader, host=f"h{leader}", port=9092, rack=None)
            self.metadata.on_leader_hint("t", partition, leader, epoch, [endpoint])

    @rule()
    def rebootstrap(self) -> None:
        self.metadata.on_rebootstrap(self.now_ms)

    @invariant()
    def epochs_never_go_back(self) -> None:
        self.metadata.take_changes()
        info = self.metadata.snapshot.topics.get("t")
        if info is None or info.topic_uuid is None:
            return
        for partition, epoch in enumerate(info.leader_epochs):
            assert epoch >= self.seen.get((info.topic_uuid, partition), -1)
            self.seen[info.topic_uuid, partition] = epoch

    @invariant()
    def leader_and_epoch_belong_together(self) -> None:
        info = self.metadata.snapshot.topics.get("t")
        if info is None or info.topic_uuid != self.topic_id:
            return
        told = {(p, state) for _, partitions in self.history for p, state in partitions.items()}
        for partition, state in enumerate(zip(info.leaders, info.leader_epochs, strict=True)):
            assert state[0] == -1 or (partition, state) in told

    def teardown(self) -> None:
        """However it went: once brokers have caught up, one answer brings the truth."""
        self.metadata.request_update()
        self.now_ms += 5000
        self.metadata.make_request(self.now_ms)
        self.metadata.on_response(response(self.topic_id, self.truth), 13, self.now_ms)
        self.metadata.take_changes()
        info = self.metadata.snapshot.topics["t"]
        assert dict(enumerate(zip(info.leaders, info.leader_epochs, strict=True))) == self.truth


def response(topic_id: uuid.UUID, partitions: dict[int, tuple[int, int]]) -> MetadataResponse:
    rows = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, (leader, epoch) in partitions.items()
    ]
    brokers = [MetadataResponseBroker(node_id=i, host=f"h{i}", port=9092) for i in NODES]
    topics = [MetadataResponseTopic(name="t", topic_id=topic_id, partitions=rows)]
    return MetadataResponse(brokers=brokers, topics=topics, cluster_id="c")


TestLaggingCluster = LaggingCluster.TestCase
