"""Bugs of followers: where logs are cut, which answers count, what an answer changes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch, PartitionReplica
from kafkaprod.broker.replication.partition_replica_log import PartitionReplicaLog
from kafkaprod.broker.storage.errors import PartitionFencedError
from kafkaprod.broker.storage.log.fence import Fence
from kafkaprod.broker.storage.log.log_store import LogStore
from kafkaprod.broker.storage.log.watermark import Watermark
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode as E
from tests.simulation.logs import SimulatedBatch, SimulatedLog
from tests.simulation.rules import RULES, replaced
from tests.support.broker.fixtures_log import make_batch, open_log
from tests.unit.broker.kafka_bugs.cases import KEY, TOPIC_ID, Cases, Node, answer, fetch, grow, log_of

CASES = Cases()


@CASES.add("KAFKA-1211", "a follower cut its log at the high watermark", RULES["logs are not cut at the watermark"])
def _cut_at_the_watermark() -> None:
    node = Node(log_of((0, 5)))
    node.hear(leader=2)
    node.log.high_watermark = 3
    node.hear(leader=3, epoch=1)
    assert node.log.end_offset == 5


def _cut_by_end_alone(log: SimulatedLog, epoch: int, end_offset: int) -> None:
    log.truncate_to(min(end_offset, log.end_offset))


@CASES.add(
    "KAFKA-6361",
    "after two fast failovers the end offset alone left logs that had parted",
    lambda: replaced(Fetcher, "_truncate", staticmethod(_cut_by_end_alone)),
)
def _cut_by_epoch() -> None:
    node = Node(log_of((0, 2), (3, 4), (5, 3)))
    node.hear(leader=2, epoch=9)
    answer(node.fetcher, node.ask(), diverging=(4, 13))
    assert node.log.end_offset == 6, "epoch 5 is unknown to the leader, whose epoch 4 follows 3"


@CASES.add("KAFKA-7395", "fetches without an epoch reached a zombie", RULES["fetches carry the leader epoch"])
def _fetches_carry_the_epoch() -> None:
    node = Node(log_of((0, 3)))
    node.hear(leader=1, epoch=4)
    assert node.replica.fetch(fetch(0, epoch=5), 0).error == E.UNKNOWN_LEADER_EPOCH
    assert node.replica.fetch(fetch(0, epoch=3), 0).error == E.FENCED_LEADER_EPOCH


@CASES.add("KAFKA-7415", "a leader that appended nothing left no epoch", RULES["a leader notes where its epoch begins"])
def _epoch_without_records() -> None:
    node = Node(log_of((0, 5)))
    node.hear(leader=1, epoch=4)
    assert node.replica.fetch(fetch(7, epoch=4, last=2), 0).diverging == (0, 5)


def _only_other_leaders(apply: Callable[..., bool]) -> Callable[..., bool]:
    def wrong(self: PartitionReplica, image: Any, now_ms: int) -> bool:
        known_epoch, known_leader = self.leader_epoch, self.image.leader
        return apply(self, image, now_ms) and (known_epoch < 0 or image.leader != known_leader)

    return wrong


@CASES.add(
    "KAFKA-7164",
    "a follower did not notice an epoch of the same leader, and did not cut its log",
    lambda: replaced(PartitionReplica, "apply", _only_other_leaders(PartitionReplica.apply)),
)
def _every_epoch_is_followed() -> None:
    node = Node()
    node.hear(leader=2, epoch=0)
    node.hear(leader=2, epoch=1)
    assert node.question().leader_epoch == 1


@CASES.add("KAFKA-7786", "an answer of an older epoch was applied", RULES["late answers are ignored"])
def _answers_of_older_epochs() -> None:
    node = Node()
    node.hear(leader=2, epoch=0)
    request = node.ask()
    node.hear(leader=2, epoch=1)
    answer(node.fetcher, request, batches=tuple(log_of((0, 1)).batches), high_watermark=1, log_start_offset=0)
    assert node.log.end_offset == 0


@CASES.add(
    "KAFKA-13207",
    "an answer was applied after the partition had left the fetcher",
    lambda: replaced(Fetcher, "remove", lambda *_: None),
)
def _answers_for_partitions_that_left() -> None:
    node = Node()
    node.hear(leader=2, epoch=0)
    fetcher, request = node.fetcher, node.ask()
    node.hear(leader=1, epoch=1)
    answer(fetcher, request, batches=tuple(log_of((0, 1)).batches), high_watermark=1, log_start_offset=0)
    assert node.log.end_offset == 0


def _noting(diverging: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: PartitionReplica, request: FollowerFetch) -> Any:
        self._note_fetch(request, 0)
        return diverging(self, request)

    return wrong


@CASES.add(
    "KAFKA-13141",
    "a fetch from where the logs part changed what the leader knows of the follower",
    lambda: replaced(PartitionReplica, "_diverging", _noting(PartitionReplica._diverging)),
)
def _diverging_fetches_change_nothing() -> None:
    node = Node(log_of((0, 2), (3, 6)))
    node.hear(leader=1, epoch=10)
    assert node.replica.fetch(fetch(5, epoch=10, last=2), 0).diverging == (0, 2)
    assert node.replica.followers[2].end_offset == -1


def _append_too(take: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: Fetcher, fetched: Any, question: Any, outcome: FetchOutcome, now_ms: int) -> None:
        take(self, fetched, question, outcome, now_ms)
        self._append(fetched.log, question, outcome)

    return wrong


@CASES.add(
    "KAFKA-14704",
    "the high watermark of an answer that says where the logs part was used",
    lambda: replaced(Fetcher, "_take_fetch", _append_too(Fetcher._take_fetch)),
)
def _nothing_else_of_a_diverging_answer() -> None:
    node = Node(log_of((0, 5)))
    node.hear(leader=2, epoch=1)
    answer(node.fetcher, node.ask(), diverging=(0, 2), high_watermark=4)
    assert (node.log.end_offset, node.log.high_watermark) == (2, 0)


def _forgetting(question: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Fetcher, fetched: Any) -> Any:
        asked = question(self, fetched)
        return asked._replace(last_fetched_epoch=-1) if fetched.question is not None else asked

    return wrong


@CASES.add(
    "KAFKA-15510",
    "an empty answer made the follower forget the epoch of its last record",
    lambda: replaced(Fetcher, "_question", _forgetting(Fetcher._question)),
)
def _empty_answers_keep_the_last_epoch() -> None:
    node = Node(log_of((2, 3)))
    node.hear(leader=2, epoch=2)
    answer(node.fetcher, node.ask(), high_watermark=3, log_start_offset=0)
    assert node.question(1000).last_fetched_epoch == 2


def _divergence_first(serve: Callable[..., FetchOutcome]) -> Callable[..., FetchOutcome]:
    def wrong(self: PartitionReplica, request: FollowerFetch, now_ms: int) -> FetchOutcome:
        diverging = self._diverging(request)
        return serve(self, request, now_ms) if diverging is None else FetchOutcome(E.NONE, diverging=diverging)

    return wrong


@CASES.add(
    "KAFKA-12996",
    "divergence was looked for below the start of the log",
    lambda: replaced(PartitionReplica, "fetch", _divergence_first(PartitionReplica.fetch)),
)
def _below_the_log_start() -> None:
    node = Node(log_of((0, 2), (3, 6), (4, 5), (7, 1)))
    node.log.raise_log_start(8)
    node.hear(leader=1, epoch=9)
    assert node.replica.fetch(fetch(5, epoch=9, last=5), 0).error == E.OFFSET_OUT_OF_RANGE


@CASES.add(
    "KAFKA-6975",
    "a batch that begins before an empty log could not be appended",
    lambda: replaced(SimulatedLog, "restart_at", lambda *_: None),
)
def _batch_before_an_empty_log() -> None:
    node = Node()
    node.log.log_start_offset = node.log.end_offset = node.log.high_watermark = 5
    node.hear(leader=2)
    batch = SimulatedBatch(3, 0, 0, -1, (1, 2, 3, 4))
    answer(node.fetcher, node.ask(), batches=(batch,), high_watermark=7, log_start_offset=3)
    assert (node.log.log_start_offset, node.log.end_offset) == (3, 7)


def _keeping_producers(load: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: LogStore, recovery: Any) -> None:
        known = getattr(self, "producers", None)
        load(self, recovery)
        self.producers = known or self.producers

    return wrong


@CASES.add(
    "KAFKA-12153",
    "a log that was cut knew the producers' batches that were gone",
    lambda: replaced(LogStore, "_load", _keeping_producers(LogStore._load)),
)
def _producers_of_a_cut_log() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        for sequence in (0, 1):
            log.append(bytearray(make_batch(producer_id=1, epoch=0, sequence=sequence)), 0)
        log.truncate_to(1)
        again = log.append(bytearray(make_batch(producer_id=1, epoch=0, sequence=1)), 0)
        assert (again.is_duplicate, log.log_end_offset) == (False, 2)


def _only_up(move: Callable[..., None]) -> Callable[..., None]:
    return lambda self, offset: move(self, max(offset, self.offset))


@CASES.add(
    "KAFKA-9491",
    "the high watermark stayed above a log that was emptied",
    lambda: replaced(Watermark, "move", _only_up(Watermark.move)),
)
def _watermark_of_an_emptied_log() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = PartitionReplicaLog(open_log(directory), 0)
        log.log.append(bytearray(make_batch()), 0)
        log.high_watermark = 1
        log.restart_at(0)
        assert (log.high_watermark, log.end_offset) == (0, 0)


def _any_newer(append: Callable[..., None]) -> Callable[..., None]:
    def wrong(log: Any, question: Any, outcome: FetchOutcome) -> None:
        append(log, question._replace(leader_epoch=1 << 30), outcome)

    return wrong


@CASES.add(
    "KAFKA-18723",
    "batches of an epoch that the follower does not follow yet were appended",
    lambda: replaced(Fetcher, "_append", staticmethod(_any_newer(Fetcher._append))),
)
def _batches_of_newer_epochs() -> None:
    node = Node()
    node.hear(leader=2, epoch=3)
    batches = tuple(log_of((0, 1), (5, 1)).batches)
    answer(node.fetcher, node.ask(), batches=batches, high_watermark=2, log_start_offset=0)
    assert node.log.end_offset == 1


class _FullLog(SimulatedLog):
    def append_replicated(self, batch: Any) -> None:
        raise BrokerError("the disk is full", code=E.KAFKA_STORAGE_ERROR)


def _raise(self: Fetcher, key: Any, fetched: Any, error: Exception, now_ms: int) -> None:
    raise AssertionError("the answer's other partitions are dropped") from error


@CASES.add("KAFKA-8346", "one bad partition stopped a fetcher", lambda: replaced(Fetcher, "_fail", _raise))
def _one_bad_partition() -> None:
    fetcher = Fetcher(2, 1, lambda: 1, retry_ms=50, idle_ms=10)
    good, other = log_of(), (TOPIC_ID, 1)
    fetcher.add(KEY, _FullLog(good._clock), 0)
    fetcher.add(other, good, 0)
    request = fetcher.next_request(0)
    assert request is not None
    outcome = FetchOutcome(E.NONE, tuple(log_of((0, 1)).batches), 1, 0)
    fetcher.on_answer(request, FetchAnswer({KEY: outcome, other: outcome}), 0)
    assert good.end_offset == 1
    following = fetcher.next_request(100)
    assert following is not None
    assert set(following.questions) == {other}


@CASES.add(
    "KAFKA-10778", "a log was written to after a write had failed", lambda: replaced(Fence, "check", lambda _: None)
)
def _writes_after_a_failed_write() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        log._fence.trip("a write failed half-way")
        try:
            log.append(bytearray(make_batch()), 0)
        except PartitionFencedError:
            return
        raise AssertionError("the append was taken")


def _always_new(apply: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *args: bool(apply(*args)) or True


@CASES.add(
    "KAFKA-13790",
    "fetchers were restarted for changes that are none of theirs",
    lambda: replaced(PartitionReplica, "apply", _always_new(PartitionReplica.apply)),
)
def _fetchers_stay() -> None:
    node = Node()
    node.hear(leader=2)
    answer(node.fetcher, node.ask(), high_watermark=0, log_start_offset=0)
    node.hear(leader=2, isr=(1, 2))
    assert node.fetcher.next_request(1) is None, "it rests after the empty answer"


@CASES.add(
    "KAFKA-7128",
    "a follower joined the ISR below the start of the epoch",
    RULES["a follower joins from the epoch's start on"],
)
def _joins_from_the_epochs_start() -> None:
    node = Node(log_of((0, 5)))
    node.hear(leader=1, epoch=3, isr=(1, 2))
    node.replica.fetch(fetch(4, follower=3, epoch=3), 0)
    assert node.replica.proposal is None
    grow(node.log, (3, 1))
    node.replica.fetch(fetch(5, follower=3, epoch=3), 0)
    assert node.replica.proposal is not None
