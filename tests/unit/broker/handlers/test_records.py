"""What the handlers of records answer: produce, fetch, offsets by time and epoch."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import ClientRequest, CloseConnectionError
from kafkaprod.broker.server.router import HANDLERS, call
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaprod.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.broker_requests import TOPIC, fetch, fetch_request, produce, produce_request
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import NOW_MS, make_batch


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})


def test_produced_batches_get_consecutive_offsets(box: BrokerWithoutSockets) -> None:
    assert produce(box, make_batch([b"a", b"b"])).base_offset == 0
    answer = produce(box, make_batch([b"c"]))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (0, 2, -1, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"batch": b""}, ErrorCode.INVALID_RECORD),
        ({"batch": b"x" * 22}, ErrorCode.INVALID_RECORD),
        ({"batch": make_batch([b"z"], codec=4), "version": 6}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"batch": make_batch([b"v" * (2 << 20)])}, ErrorCode.MESSAGE_TOO_LARGE),
        (
            {"batch": make_batch(is_transactional=True, producer_id=1, epoch=0, sequence=0)},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_refused_produce_writes_nothing(box: BrokerWithoutSockets, change: dict[str, Any], expected: ErrorCode) -> None:
    answer = produce(box, change.pop("batch", make_batch()), **change)
    assert (answer.error_code, answer.base_offset) == (expected, -1)
    assert fetch(box).high_watermark == 0


def test_flipped_bit_in_a_batch_is_found_by_its_checksum(box: BrokerWithoutSockets) -> None:
    batch = bytearray(make_batch())
    batch[-1] ^= 1
    assert produce(box, batch).error_code == ErrorCode.CORRUPT_MESSAGE


def test_failing_records_are_listed(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path)
    box.own_topics.create("compacted", 1, {"cleanup.policy": "compact"})
    answer = produce(box, make_batch([b"a", b"b", b"c"], keys=[b"k", None, None]), topic="compacted")
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 2]


def test_batch_of_many_plain_bytes_is_checked_outside_the_event_loop(box: BrokerWithoutSockets) -> None:
    waiting = []
    box.broker.run_long = lambda *calls: waiting.append(calls)
    small, large = make_batch([b"s"], codec=1), make_batch([b"v" * (2 << 20)], codec=1)
    request = produce_request(small)
    for batch in (large, small, b"x"):
        request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=memoryview(bytearray(batch))))
    received = box.begin(request, 9)
    assert fetch(box).high_watermark == 1
    assert not received
    while waiting:
        work, then = waiting.pop()
        work()
        then()
    (answer,) = received
    assert isinstance(answer, ProduceResponse)
    assert [part.base_offset for part in answer.responses[0].partition_responses] == [0, 1, 2, -1]
    assert fetch(box).high_watermark == 3


def test_syncs_of_a_request_are_one_a_partition(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2}, flush_policy=each())
    syncs = []
    run_blocking = box.broker.run_blocking

    def counted(work: Callable[[], None], then: Callable[[], None]) -> None:
        syncs.append(work)
        run_blocking(work, then)

    box.broker.run_blocking = counted  # type: ignore[method-assign]
    request = produce_request(make_batch())
    data = request.topic_data[0].partition_data
    data.extend(PartitionProduceData(index=index, records=memoryview(make_batch())) for index in (1, 0, 0, 1))
    answer = box.ask(request, ProduceResponse, 9)
    assert [part.base_offset for part in answer.responses[0].partition_responses] == [0, 0, 1, 2, 1]
    assert len(syncs) == 2


def test_clients_cannot_write_to_internal_topics(box: BrokerWithoutSockets) -> None:
    box.own_topics.create("__consumer_offsets", 1, {})
    assert produce(box, make_batch(), topic="__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(box: BrokerWithoutSockets) -> None:
    assert box.has_no_answer(produce_request(make_batch(), acks=0), 9)
    assert fetch(box).high_watermark == 1
    bad: ClientRequest[Any] = ClientRequest(produce_request(make_batch(), acks=0, partition=7), 9, "c", "h")
    with pytest.raises(CloseConnectionError, match="orders-7"):
        call(HANDLERS[ApiKey.PRODUCE], box.broker, bad)


def test_flush_policy_each_syncs_every_partition_of_a_request(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 3}, flush_policy=each())
    request = produce_request(make_batch())
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=memoryview(bytearray(make_batch()))) for index in range(3)
    ]
    answer = box.ask(request, ProduceResponse, 9).responses[0].partition_responses
    assert [outcome.error_code for outcome in answer] == [0, 0, 0]
    logs = [partition.log for partition in box.broker.topics.get(TOPIC).partitions]  # type: ignore[union-attr]
    assert [log.recovery_point for log in logs] == [1, 1, 1]


def test_flush_policy_each_answers_after_the_sync(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1}, flush_policy=each())
    (outcome,) = box.begin(produce_request(make_batch()), 9)
    assert isinstance(outcome, ProduceResponse)
    log = box.broker.topics.get(TOPIC).partitions[0].log  # type: ignore[union-attr]
    assert log.recovery_point == log.high_watermark == 1


def test_duplicate_of_an_idempotent_batch_gets_the_first_offset(box: BrokerWithoutSockets) -> None:
    batch = make_batch([b"a"], producer_id=5, epoch=0, sequence=0)
    assert [produce(box, batch).base_offset for _ in range(2)] == [0, 0]
    gap = make_batch([b"a"], producer_id=5, epoch=0, sequence=7)
    assert produce(box, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_fetch_returns_the_batch_that_contains_the_offset(box: BrokerWithoutSockets) -> None:
    produce(box, make_batch([b"a", b"b", b"c"]))
    produce(box, make_batch([b"d"]))
    data = fetch(box, 1)
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 4, 4, 0)
    assert data.records is not None
    assert bytes(data.records[:8]) == bytes(8)
    assert len(data.records) == len(make_batch([b"a", b"b", b"c"])) + len(make_batch([b"d"]))
    assert (data.preferred_read_replica, data.aborted_transactions) == (-1, None)


def test_first_batch_is_returned_whole_whatever_the_limits(box: BrokerWithoutSockets) -> None:
    batch = make_batch([b"v" * 3000])
    for partition in (0, 1):
        produce(box, batch, partition=partition)
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=10) for index in (0, 1)]
    request = FetchRequest(max_bytes=5, topics=[FetchTopic(topic=TOPIC, partitions=partitions)])
    answer = box.ask(request, FetchResponse, 11).responses[0].partitions
    assert [len(data.records or b"") for data in answer] == [len(batch), 0]


def test_large_records_are_named_by_file_range_not_read(box: BrokerWithoutSockets) -> None:
    batch = make_batch([b"v" * 5000])
    produce(box, batch)
    (outcome,) = box.begin(fetch_request(), 11)
    assert isinstance(outcome, FileResponse)
    (source,) = outcome.ranges
    assert source.length == len(batch)
    assert source.read()[61:] == batch[61:]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_fetch_error_is_answered_at_once(
    box: BrokerWithoutSockets, change: dict[str, Any], expected: ErrorCode
) -> None:
    produce(box, make_batch())
    data = fetch(box, change.pop("offset", 0), max_wait_ms=10_000, **change)
    assert data.error_code == expected


def test_out_of_range_fetch_tells_the_range(box: BrokerWithoutSockets) -> None:
    produce(box, make_batch())
    data = fetch(box, 9)
    assert (data.high_watermark, data.log_start_offset) == (1, 0)


def test_client_with_an_older_leader_epoch_is_fenced(box: BrokerWithoutSockets) -> None:
    box.broker.topics.move_leader(TOPIC, 0)
    assert fetch(box, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(box, current_leader_epoch=1).error_code == ErrorCode.NONE


def test_fenced_client_is_told_the_leader_where_there_is_a_place_for_it(box: BrokerWithoutSockets) -> None:
    box.broker.topics.move_leader(TOPIC, 0)
    request = fetch_request(current_leader_epoch=0)
    request.topics[0].topic_id = box.broker.topics.get(TOPIC).topic_id  # type: ignore[union-attr]
    leaders = {}
    for version in (15, 16):
        answer = box.ask(request, FetchResponse, version)
        data = answer.responses[0].partitions[0]
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        leaders[version] = (data.current_leader.leader_id, data.current_leader.leader_epoch, len(answer.node_endpoints))
    assert leaders == {15: (-1, -1, 0), 16: (0, 1, 1)}


def test_topics_are_found_by_their_ids(box: BrokerWithoutSockets) -> None:
    topic_id = box.broker.topics.get(TOPIC).topic_id  # type: ignore[union-attr]
    for wanted, expected in ((topic_id, ErrorCode.NONE), (uuid.uuid4(), ErrorCode.UNKNOWN_TOPIC_ID)):
        produced, fetched = produce_request(make_batch(), topic=""), fetch_request(topic="")
        produced.topic_data[0].topic_id = fetched.topics[0].topic_id = wanted
        (written,) = box.ask(produced, ProduceResponse, 13).responses
        (read,) = box.ask(fetched, FetchResponse, 17).responses
        assert (written.topic_id, read.topic_id) == (wanted, wanted)
        assert (written.partition_responses[0].error_code, read.partitions[0].error_code) == (expected, expected)
    assert fetch(box).high_watermark == 1


def test_id_of_a_deleted_topic_is_unknown(box: BrokerWithoutSockets) -> None:
    old_id = box.broker.topics.get(TOPIC).topic_id  # type: ignore[union-attr]
    box.own_topics.delete(TOPIC)
    box.own_topics.create(TOPIC, 2, {})
    request = produce_request(make_batch())
    request.topic_data[0].topic_id = old_id
    answer = box.ask(request, ProduceResponse, 13).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(box).high_watermark == 0


def test_fetch_of_a_session_is_refused(box: BrokerWithoutSockets) -> None:
    answer = box.ask(fetch_request(session_id=7, session_epoch=1), FetchResponse, 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize("session_id", [0, -1, 7])
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_full_fetch_reads_whatever_the_session_id_is(
    box: BrokerWithoutSockets, session_id: int, session_epoch: int
) -> None:
    produce(box, make_batch([b"a"]))
    request = fetch_request(session_id=session_id, session_epoch=session_epoch)
    answer = box.ask(request, FetchResponse, 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
    assert answer.responses[0].partitions[0].records


def test_fetch_that_names_a_partition_twice_is_refused(box: BrokerWithoutSockets) -> None:
    request = fetch_request()
    request.topics[0].partitions *= 2
    assert box.ask(request, FetchResponse, 11).error_code == ErrorCode.INVALID_REQUEST


def test_diverging_reader_is_told_where_to_truncate(box: BrokerWithoutSockets) -> None:
    produce(box, make_batch([b"a"]))
    box.broker.topics.move_leader(TOPIC, 0)
    box.broker.topics.move_leader(TOPIC, 0)
    produce(box, make_batch([b"b"]))
    data = fetch(box, 5, version=12, last_fetched_epoch=1, max_wait_ms=10_000)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)


def test_fetch_waits_for_records_and_is_answered_when_they_come(box: BrokerWithoutSockets) -> None:
    answers = box.begin(fetch_request(max_wait_ms=500, min_bytes=1), 11)
    box.advance(499)
    assert answers == []
    produce(box, make_batch())
    box.advance(0)
    assert len(answers) == 1
    box.advance(10_000)
    assert len(answers) == 1


def test_fetch_waits_for_min_bytes_and_gives_up_after_max_wait(box: BrokerWithoutSockets) -> None:
    answers = box.begin(fetch_request(max_wait_ms=500, min_bytes=100_000), 11)
    produce(box, make_batch([b"v" * 100]))
    box.advance(499)
    assert answers == []
    box.advance(1)
    assert isinstance(answers[0], FileResponse)


def test_disk_that_fails_under_a_waiting_fetch_is_answered(
    box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("Input/output error")

    answers = box.begin(fetch_request(max_wait_ms=500, min_bytes=1), 11)
    monkeypatch.setattr(FileSlice, "read", fail)
    produce(box, make_batch())
    box.advance(0)
    (outcome,) = answers
    assert isinstance(outcome, FileResponse)
    assert isinstance(outcome.response, FetchResponse)
    assert outcome.response.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_deleted_topic_ends_the_wait_of_its_readers(box: BrokerWithoutSockets) -> None:
    answers = box.begin(fetch_request(max_wait_ms=500, min_bytes=1), 11)
    box.own_topics.delete(TOPIC)
    box.advance(0)
    (outcome,) = answers
    assert isinstance(outcome, FileResponse)
    assert isinstance(outcome.response, FetchResponse)
    assert outcome.response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def list_offsets(
    box: BrokerWithoutSockets, timestamp: int, version: int = 7, **change: Any
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=change.pop("partition", 0), timestamp=timestamp, **change)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    return box.ask(request, ListOffsetsResponse, version).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [
        (-1, 4, -1),
        (-2, 1, -1),
        (-3, 2, NOW_MS + 5),
        (NOW_MS + 3, 2, NOW_MS + 5),
        (0, 1, NOW_MS + 2),
        (NOW_MS + 6, -1, -1),
    ],
)
def test_list_offsets_finds_start_end_and_times(
    box: BrokerWithoutSockets, timestamp: int, offset: int, found_timestamp: int
) -> None:
    for time in (1, 2, 5, 4):
        produce(box, make_batch([b"v"], timestamps=[NOW_MS + time]))
    box.broker.topics.get(TOPIC).partitions[0].log.delete_records(1)  # type: ignore[union-attr]
    answer = list_offsets(box, timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found_timestamp)


def test_offsets_by_time_are_looked_up_outside_the_event_loop_and_once(box: BrokerWithoutSockets) -> None:
    waiting = []
    box.broker.run_long = lambda *calls: waiting.append(calls)
    produce(box, make_batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS + 5], codec=1))
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=NOW_MS + 1) for index in (0, 1, 1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=wanted)])
    received = box.begin(request, 5)
    assert not received
    ((work, then),) = waiting
    work()
    then()
    (answer,) = received
    assert isinstance(answer, ListOffsetsResponse)
    found = [(part.partition_index, part.error_code, part.offset) for part in answer.topics[0].partitions]
    assert found == [(0, 0, 1), (1, ErrorCode.INVALID_REQUEST, -1), (1, ErrorCode.INVALID_REQUEST, -1)]


def test_list_offsets_errors(box: BrokerWithoutSockets) -> None:
    assert list_offsets(box, -1, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(box, -1, current_leader_epoch=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_end_of_an_epoch_is_found(box: BrokerWithoutSockets) -> None:
    produce(box, make_batch([b"a", b"b"]))
    box.broker.topics.move_leader(TOPIC, 0)
    produce(box, make_batch([b"c"]))
    box.broker.topics.move_leader(TOPIC, 0)

    def end_of(epoch: int) -> EpochEndOffset:
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])])
        return box.ask(request, OffsetForLeaderEpochResponse, 3).topics[0].partitions[0]

    assert [(end_of(epoch).leader_epoch, end_of(epoch).end_offset) for epoch in (0, 1, 2, 9)] == [
        (0, 2),
        (1, 3),
        (2, 3),
        (-1, -1),
    ]


@pytest.mark.parametrize("count", [100, 400])
def test_no_turn_of_a_clusters_loop_appends_more_for_a_larger_request(tmp_path: Path, count: int) -> None:
    """Its replicas belong to the loop: what does not fit into a slice is posted, behind what others want."""
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1})
    box.broker.standing.appends_in_loop = True  # type: ignore[misc]
    box.broker.clock.now_ms = lambda: box.clock.advance(1)  # type: ignore[method-assign]
    posted: list[Callable[[], None]] = []
    box.broker.post = posted.append
    batch = make_batch([b"v" * 9_000])
    parts = [PartitionProduceData(index=0, records=memoryview(bytearray(batch))) for _ in range(count)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=parts)])
    partition = box.broker.topics.partition(TOPIC, 0)
    assert partition is not None
    outcome = box.begin(request, 9)
    turns = [partition.log.log_end_offset]
    assert turns[0] < count
    while posted:
        posted.pop(0)()
        turns.append(partition.log.log_end_offset - sum(turns))
    (response,) = outcome
    assert isinstance(response, ProduceResponse)
    assert [part.base_offset for part in response.responses[0].partition_responses] == list(range(count))
    assert max(turns) < 90
    box.broker.close()
