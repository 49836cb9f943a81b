"""Topics whose batches are made another way than the producer's others: size, linger, codec."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.records.batch_reader import read_batches
from kafkaprod.compression import Codec, decompress
from tests.support.codecs import codec_of
from tests.support.core.core_engine import TIMESTAMP, TOPIC, Engine, batches_of, succeed
from tests.support.core.core_model import decode_produce_body

OTHER = "logs"
SIZE, OTHER_SIZE = 4000, 1500
LINGER_MS = 20
RECORD = b"x" * 491  # a record of 500 bytes
ANY_PARTITION = -1
Batching = tuple[int, int, int, int, bool]


def engine_of(
    batching: Batching = (OTHER_SIZE, OTHER_SIZE, LINGER_MS, 0, False),
    *,
    leaders: list[int] | None = None,
    codec: Codec | None = None,
    topic_codecs: tuple[Codec | None, ...] = (),
    **more: int,
) -> Engine:
    """An engine with the usual topic, and one that has a batching of its own."""
    more = {"batch_size": SIZE, "linger_ms": LINGER_MS} | more
    engine = Engine(leaders=leaders, codec=codec, topic_codecs=topic_codecs, **more)  # type: ignore[arg-type]
    engine.accumulator.topic_batching = lambda topic: batching if topic == OTHER else None
    engine.lead(leaders or [1], OTHER)
    return engine


def take_by_topic(engine: Engine) -> dict[str, list[bytes]]:
    """Take and acknowledge all that is queued; the batches of each topic, as sent."""
    found: dict[str, list[bytes]] = {}
    for request in engine.take_all():
        body = request.body(7, -1, 30_000)
        joined = b"".join(bytes(memoryview(buffer)) for buffer in body.from_byte(0))
        for topic, _, batch in decode_produce_body(7, joined).batches:
            found.setdefault(str(topic), []).append(batch)
        succeed(request)
    return found


def sizes_of(batches: Mapping[str, list[bytes]], topic: str) -> list[int]:
    return [len(batch) for batch in batches[topic]]


def codec_ids_of(batches: Mapping[str, list[bytes]], topic: str) -> set[int]:
    """The codecs of the batches; reading checks each CRC and all records."""
    readers = [reader for batch in batches[topic] for reader in read_batches(batch, decompress)]
    assert {record.value for reader in readers for record in reader.records()} == {RECORD}
    return {reader.codec_id for reader in readers}


# -- batch_size --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_size", [1500, 3000, 8000])
def test_batches_of_a_topic_have_its_own_size(own_size: int) -> None:
    engine = engine_of((own_size, own_size, LINGER_MS, 0, False))
    for topic in (TOPIC, OTHER):
        for _ in range(40):
            engine.append(RECORD, topic=topic)
    batches = take_by_topic(engine)
    for topic, limit in ((TOPIC, SIZE), (OTHER, own_size)):
        *full, _ = sizes_of(batches, topic)
        assert all(limit - 501 < size <= limit for size in full), topic


def test_batch_grows_on_to_the_most_of_its_topic() -> None:
    engine = engine_of((1500, 3000, LINGER_MS, 0, False))
    for _ in range(12):
        engine.append(RECORD, topic=OTHER)
    assert max(sizes_of(take_by_topic(engine), OTHER)) in range(2500, 3001)


def test_batch_of_a_topic_is_sendable_from_its_own_size_on() -> None:
    engine = engine_of()
    for _ in range(3):
        engine.append(RECORD, topic=TOPIC)
        engine.append(RECORD, topic=OTHER)
    assert engine.ready_nodes() == [1]  # OTHER's is full
    batches = [engine.take()]
    assert {ref.topic for ref in batches[0].refs()} == {TOPIC, OTHER}


def test_records_without_a_key_leave_a_partition_after_a_batch_of_their_topic() -> None:
    engine = engine_of(leaders=[1, 1, 1])
    for topic in (TOPIC, OTHER):
        for _ in range(24):
            engine.append(RECORD, -1, topic)
    batches = take_by_topic(engine)
    assert max(sizes_of(batches, OTHER)) <= OTHER_SIZE < max(sizes_of(batches, TOPIC)) <= SIZE


@pytest.mark.parametrize("partition", [0, ANY_PARTITION])
def test_rows_of_a_block_fill_batches_of_the_size_of_their_topic(partition: int) -> None:
    engine = engine_of(leaders=[1, 1])
    rows = Column.from_list([RECORD] * 40)
    for topic in (TOPIC, OTHER):
        queues = engine.accumulator.topics[topic]
        block = Block(engine.accumulator, queues, rows, timestamp=TIMESTAMP, partition=partition)
        block.run(engine.now_ms)
        assert block.rows_appended == 40
    batches = take_by_topic(engine)
    assert max(sizes_of(batches, OTHER)) <= OTHER_SIZE < max(sizes_of(batches, TOPIC)) <= SIZE


def test_partitions_that_a_topic_gets_later_have_its_batching() -> None:
    engine = engine_of()
    engine.lead([1, 1, 1], OTHER)
    for _ in range(10):
        engine.append(RECORD, 2, OTHER)
    assert max(sizes_of(take_by_topic(engine), OTHER)) <= OTHER_SIZE


def test_larger_size_of_a_topic_counts_until_the_path_is_measured() -> None:
    engine = engine_of((9000, 9000, LINGER_MS, 0, False), first_limit=SIZE)

    def largest() -> dict[str, int]:
        for topic in (TOPIC, OTHER):
            for _ in range(40):
                engine.append(RECORD, topic=topic)
        batches = take_by_topic(engine)
        return {topic: max(sizes_of(batches, topic)) for topic in batches}

    assert largest()[OTHER] > SIZE
    engine.drain.limit_path(1, SIZE, False)
    assert largest()[OTHER] > SIZE
    engine.drain.limit_path(1, SIZE, True)
    assert largest()[OTHER] <= SIZE


# -- linger_ms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_ms", [0, 5, 50])
def test_batch_lingers_as_long_as_its_topic_says(own_ms: int) -> None:
    for topic, linger_ms in ((TOPIC, LINGER_MS), (OTHER, own_ms)):
        engine = engine_of((SIZE, SIZE, own_ms, 0, False))
        engine.append(RECORD, topic=topic)
        if linger_ms:
            assert engine.ready_nodes() == []
            assert engine.drain.next_check_us - engine.now_us in range(linger_ms * 1000 - 200, linger_ms * 1000)
            engine.clock.advance(linger_ms - 1)
            assert engine.ready_nodes() == []
            engine.clock.advance(1)
        assert engine.ready_nodes() == [1]


@pytest.mark.parametrize(("own_ms", "wakes"), [(0, 1), (5, 1), (LINGER_MS, 0), (50, 0)])
def test_new_batch_that_lingers_less_than_others_wakes_a_sender_that_lets_those_linger(own_ms: int, wakes: int) -> None:
    engine = engine_of((SIZE, SIZE, own_ms, 0, False))
    engine.accumulator.set_sender_sleeps(True)
    engine.accumulator.let_new_batches_linger()
    engine.append(RECORD, topic=TOPIC)
    assert engine.wakeups == 0
    engine.append(RECORD, topic=OTHER)
    assert engine.wakeups == wakes


# -- codec -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual", "own", "expected"),
    [
        (None, codec_of("zstd"), {TOPIC: {0}, OTHER: {4}}),
        (codec_of("lz4"), None, {TOPIC: {3}, OTHER: {0}}),
        (codec_of("gzip"), codec_of("zstd"), {TOPIC: {1}, OTHER: {4}}),
    ],
)
def test_batches_of_a_topic_have_its_own_codec(
    usual: Codec | None, own: Codec | None, expected: dict[str, set[int]]
) -> None:
    engine = engine_of((SIZE, SIZE, 0, 1, own is not None), codec=usual, topic_codecs=(own,))
    for _ in range(20):
        for topic in (TOPIC, OTHER):
            engine.append(RECORD, topic=topic)
    batches = take_by_topic(engine)
    assert {topic: codec_ids_of(batches, topic) for topic in batches} == expected


@pytest.mark.parametrize(
    "counts", [(1, 4), (4, 5, 64), (1, 2, 3, 4), (4, 2, 6), (8, 1, 9)], ids=lambda counts: "-".join(map(str, counts))
)
@pytest.mark.parametrize("is_recreated", [False, True])
def test_partitions_that_come_later_have_all_that_their_topic_has(counts: tuple[int, ...], is_recreated: bool) -> None:
    own_ms = 7
    engine = engine_of(
        (OTHER_SIZE, OTHER_SIZE, own_ms, 1, True),
        leaders=[1] * counts[0],
        codec=codec_of("lz4"),
        topic_codecs=(codec_of("zstd"),),
    )
    for number, count in enumerate(counts):
        engine.lead([1] * count, OTHER, topic_id=bytes([number if is_recreated else 1]) * 16)
        for partition in range(count):
            engine.append(RECORD, partition, OTHER)
            assert engine.ready_nodes() == []
            engine.clock.advance(own_ms)
            assert engine.ready_nodes() == [1], "its linger_ms is the topic's"
            batches = take_by_topic(engine)
            assert codec_ids_of(batches, OTHER) == {4}, "its codec is the topic's"
            for _ in range(6):
                engine.append(RECORD, partition, OTHER)
            assert engine.ready_nodes() == [1], "its batch_size is the topic's"
            assert record_counts_of(take_by_topic(engine)[OTHER]) == [OTHER_SIZE // 500 - 1] * 3


def record_counts_of(batches: Sequence[bytes]) -> list[int]:
    return [len(reader.records()) for batch in batches for reader in read_batches(batch, decompress)]


def test_request_has_room_for_plain_batches_beside_those_that_become_small() -> None:
    room = 10_000
    engine = engine_of(
        (SIZE, SIZE, 0, 1, False),
        leaders=[1] * 10,
        codec=codec_of("zstd"),
        topic_codecs=(None,),
        max_request_bytes=room,
    )
    chance = random.Random(5)
    for _ in range(200):  # the ratio falls slowly
        engine.append(bytes(SIZE - 100), 0)
        for request in engine.take_all():
            succeed(request)
    for partition in range(10):
        engine.append(chance.randbytes(SIZE - 100), partition, OTHER)
        engine.append(bytes(SIZE - 100), partition, TOPIC)
    requests = engine.take_all()
    for request in requests:
        assert sum(map(len, batches_of(request))) <= room
    assert any(len({ref.topic for ref in request.refs()}) == 2 for request in requests)
