"""A fetch of many partitions: no turn of the event loop reads more than a few of them, however long it waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import ClientRequest, Deferred, Ready
from kafkaprod.broker.calls.steps import FIRST_SLICE_MS
from kafkaprod.broker.handlers import fetch_reading, fetch_waiting
from kafkaprod.broker.server.router import HANDLERS, call
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.broker.broker_requests import produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch
from tests.support.clock import ManualClock

TOPIC = "many"
COUNT = 200
BATCH = bytes(make_batch([b"v" * 100]))


class Box(BrokerWithoutSockets):
    """A broker whose reads take a millisecond each, and which counts them."""

    def __init__(self, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(data_dir, topics={TOPIC: COUNT})
        self.read_count = 0
        self.ms_a_read = 1
        self.later: deque[Callable[[], None]] = deque()
        self.broker.post = self.later.append
        read = fetch_reading._read_partition

        def slow_read(*args: object) -> object:
            self.read_count += 1
            clock = self.clock
            assert isinstance(clock, ManualClock)
            clock.advance(self.ms_a_read)
            return read(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(fetch_reading, "_read_partition", slow_read)

    def reads_of(self, turn: Callable[[], object]) -> int:
        before = self.read_count
        turn()
        return self.read_count - before

    def finish(self) -> list[int]:
        """Run all turns that were asked for; return how much each of them read."""
        counts = []
        while self.later:
            counts.append(self.reads_of(self.later.popleft()))
        return counts

    def produce(self, partition: int) -> None:
        response = produce(self, BATCH, topic=TOPIC, partition=partition)
        assert response.error_code == ErrorCode.NONE


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    box = Box(tmp_path, monkeypatch)
    yield box
    box.broker.close()  # else its descriptors stay open until the collector runs


def fetch_of_all(max_wait_ms: int, min_bytes: int) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(COUNT)]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic=TOPIC, partitions=wanted)]
    )


def records_of(answers: list[Ready]) -> dict[int, bytes]:
    (answer,) = answers
    assert isinstance(answer, FileResponse)
    assert isinstance(answer.response, FetchResponse)
    found = {part.partition_index: bytes(part.records or b"") for part in answer.response.responses[0].partitions}
    assert len(found) == COUNT
    return {index: records for index, records in found.items() if records}


def test_a_turn_reads_a_few_partitions_only(box: Box) -> None:
    box.produce(7)
    box.produce(COUNT - 1)
    assert box.reads_of(lambda: box.begin(fetch_of_all(0, 1), 11)) <= FIRST_SLICE_MS
    counts = box.finish()
    assert sum(counts) >= COUNT - FIRST_SLICE_MS
    assert max(counts) <= FIRST_SLICE_MS


def test_all_partitions_are_in_the_answer(box: Box) -> None:
    box.produce(7)
    box.produce(COUNT - 1)
    answers = box.begin(fetch_of_all(0, 1), 11)
    assert answers == []
    box.finish()
    assert set(records_of(answers)) == {7, COUNT - 1}


def test_a_waiting_fetch_looks_only_at_what_has_moved(box: Box) -> None:
    box.ms_a_read = 0
    answers = box.begin(fetch_of_all(1000, 2 * len(BATCH)), 11)
    box.finish()
    box.produce(3)
    assert box.reads_of(lambda: box.advance(0)) == 1
    assert answers == []
    box.produce(4)
    box.produce(5)
    box.advance(0)
    box.finish()
    assert set(records_of(answers)) == {3, 4, 5}


def test_many_moves_at_once_are_looked_at_in_several_turns(box: Box) -> None:
    box.ms_a_read = 0
    answers = box.begin(fetch_of_all(100_000, (COUNT + 1) * len(BATCH)), 11)
    box.finish()
    for index in range(COUNT):
        box.produce(index)
    box.ms_a_read = 1
    counts = [box.reads_of(lambda: box.advance(0)), *box.finish()]
    assert max(counts) <= FIRST_SLICE_MS
    assert sum(counts) == COUNT
    assert answers == []
    box.produce(0)
    box.advance(0)
    box.finish()
    assert len(records_of(answers)) == COUNT


def test_a_wait_that_is_over_is_answered_with_what_there_is(box: Box) -> None:
    box.ms_a_read = 0
    answers = box.begin(fetch_of_all(1000, 1 << 20), 11)
    box.produce(9)
    box.advance(999)
    assert answers == []
    box.advance(1)
    assert set(records_of(answers)) == {9}
    box.produce(9)
    box.advance(5000)
    assert len(answers) == 1


def test_more_than_the_most_bytes_is_not_waited_for(box: Box) -> None:
    box.ms_a_read = 0
    request = fetch_of_all(1000, 1 << 20)
    request.max_bytes = len(BATCH)
    answers = box.begin(request, 11)
    box.produce(1)
    box.advance(0)
    assert set(records_of(answers)) == {1}


def test_nothing_is_read_for_a_client_that_has_gone(box: Box) -> None:
    def begin() -> Deferred:
        outcome = call(
            HANDLERS[ApiKey.FETCH], box.broker, ClientRequest(fetch_of_all(1000, 1 << 20), 11, "c", "127.0.0.1", None)
        )
        assert isinstance(outcome, Deferred)
        return outcome

    begin().abandon()  # while it reads
    assert sum(box.finish()) == 0
    box.ms_a_read = 0
    waiting = begin()
    waiting.abandon()
    box.produce(1)
    assert box.reads_of(lambda: box.advance(5000)) == 0
    assert len(box.purgatory) == 0


def test_an_error_of_one_partition_ends_the_wait(box: Box) -> None:
    box.ms_a_read = 0
    answers = box.begin(fetch_of_all(1000, 1 << 20), 11)
    box.own_topics.delete(TOPIC)
    box.advance(0)
    (answer,) = answers
    assert isinstance(answer, FileResponse)
    assert isinstance(answer.response, FetchResponse)
    codes = {part.error_code for part in answer.response.responses[0].partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_few_partitions_keep_no_account(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_waiting.WaitingFetch, "begin", None)
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    answers = box.begin(
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=wanted)]), 11
    )
    box.produce(0)
    box.advance(0)
    assert len(answers) == 1
