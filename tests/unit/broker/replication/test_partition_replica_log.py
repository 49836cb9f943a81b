"""Replication over real logs: a fetcher copies, and cuts where the logs part."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher
from kafkaprod.broker.replication.partition import Eligibility, FollowerFetch, PartitionReplica, ReplicaSettings
from kafkaprod.broker.replication.partition_replica_log import PartitionReplicaLog, ReadBatches, fetched_batches
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from tests.support.broker.fixtures_log import make_batch, open_log, read_all

TOPIC_ID = uuid.UUID(int=1)
KEY = (TOPIC_ID, 0)


@dataclass
class Pair:
    """Broker 1 leads, broker 2 fetches from it."""

    logs: dict[int, PartitionLog]
    epoch: int = 0

    def lead(self, leader: int, epoch: int) -> None:
        """Make a broker leader of an epoch, and the other one its follower from now on."""
        self.epoch, other = epoch, 3 - leader
        log = PartitionReplicaLog(self.logs[leader], self.logs[leader].high_watermark)
        image = PartitionImage(TOPIC_ID, 0, (1, 2), (1, 2), leader, epoch, epoch)
        eligibility = Eligibility(lambda _: True, lambda _: 1)
        self.leader = PartitionReplica(leader, log, ReplicaSettings(), eligibility, lambda: 1, image)
        self.leader.apply(image, 0)
        self.fetcher = Fetcher(leader, other, lambda: 1, retry_ms=10, idle_ms=0)
        self.fetcher.add(KEY, PartitionReplicaLog(self.logs[other], self.logs[other].high_watermark), epoch)

    def append(self, *values: bytes) -> None:
        """Append a batch at the leader, which tries to move its high watermark."""
        self.leader.log.log.append(bytearray(make_batch(values)), self.epoch)  # type: ignore[attr-defined]
        self.leader.advance_high_watermark()

    def fetch(self) -> None:
        """Have the follower fetch once."""
        request = self.fetcher.next_request(0)
        assert request is not None
        question = request.questions[KEY]
        assert isinstance(question, FollowerFetch)
        outcome = self.leader.fetch(question, 0)
        batches = tuple(
            batch
            for part in outcome.batches
            if isinstance(part, ReadBatches)
            for batch in fetched_batches(memoryview(part.source.read()))
        )
        answer = type(outcome)(
            outcome.error, batches, outcome.high_watermark, outcome.log_start_offset, outcome.diverging
        )
        self.fetcher.on_answer(request, FetchAnswer({KEY: answer}), 0)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    logs = {}
    for broker_id in (1, 2):
        directory = tmp_path / str(broker_id)
        directory.mkdir()
        logs[broker_id] = open_log(directory)
    return Pair(logs)


def test_a_follower_copies_byte_for_byte_and_the_watermark_follows(pair: Pair) -> None:
    pair.lead(1, 0)
    pair.append(b"a", b"b")
    pair.append(b"c")
    assert pair.logs[1].high_watermark == 0  # broker 2 is in sync, and has nothing yet
    pair.fetch()
    assert read_all(pair.logs[2], upper_bound=3) == read_all(pair.logs[1], upper_bound=3)
    assert pair.logs[1].high_watermark == 0
    pair.fetch()
    assert pair.logs[1].high_watermark == 3
    pair.fetch()
    assert pair.logs[2].high_watermark == 3


def test_an_old_leaders_tail_is_cut_where_the_logs_part(pair: Pair) -> None:
    pair.lead(1, 0)
    pair.append(b"both")
    pair.fetch()
    pair.fetch()
    pair.append(b"only on broker 1")
    pair.lead(2, 1)
    pair.append(b"of the new leader")
    pair.fetch()  # the answer names where epoch 0 ends
    pair.fetch()
    assert read_all(pair.logs[1], upper_bound=2) == read_all(pair.logs[2], upper_bound=2)
    assert pair.logs[1].end_offset_for_epoch(0) == (0, 1)
    assert pair.logs[1].log_end_offset == 2


def test_an_epoch_without_records_is_known(pair: Pair) -> None:
    pair.lead(1, 0)
    pair.append(b"both")
    pair.fetch()
    pair.lead(2, 1)
    pair.lead(1, 2)
    assert pair.logs[2].latest_epoch == 1
    assert pair.logs[1].epoch_for(0) == 0
    assert pair.logs[1].latest_epoch == 2


def test_a_damaged_batch_is_fetched_again(pair: Pair) -> None:
    pair.lead(1, 0)
    pair.append(b"value")
    request = pair.fetcher.next_request(0)
    assert request is not None
    outcome = pair.leader.fetch(request.questions[KEY], 0)  # type: ignore[arg-type]
    assert isinstance(outcome.batches[0], ReadBatches)
    damaged = bytearray(outcome.batches[0].source.read())
    damaged[-1] ^= 1
    bad = type(outcome)(outcome.error, tuple(fetched_batches(memoryview(damaged))), 0, 0)
    pair.fetcher.on_answer(request, FetchAnswer({KEY: bad}), 0)
    assert pair.logs[2].log_end_offset == 0
    assert pair.fetcher.next_deadline_ms() == 10
    again = pair.fetcher.next_request(10)
    assert again is not None
    assert again.questions == request.questions


def test_half_a_batch_at_the_end_of_an_answer_is_left_out() -> None:
    first, second = make_batch([b"a"]), make_batch([b"b"])
    assert [len(batch.data) for batch in fetched_batches(memoryview(first + second[:-1]))] == [len(first)]
