"""settle_all, the declared ProduceResponse and the sender agree on every answer; no bytes crash or confuse them."""

from __future__ import annotations

import random
import struct
import time
import uuid
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod._core.requests.produce_response import settle_all
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.producer.sender_rig import WITHOUT_ID, Rig, topic_uuid

VERSIONS = st.integers(3, 13)
OFFSETS = st.integers(-1, 2**63 - 1)
TEXT = st.none() | st.text(max_size=20)
LAYOUTS = st.dictionaries(
    st.sampled_from(["a", "b.c", "topic-with-a-longer-name", "d"]), st.integers(1, 5), min_size=1, max_size=3
)
# Retriable, split, duplicate, final, and unknown codes.
CODES = st.sampled_from([0, 0, 0, 6, 7, 10, 19, 29, 45, 46, 59, 87, -1, 999])


class World:
    """One produce request in flight, with a record for each of its partitions, and a count of each one's outcomes."""

    def __init__(self, layout: dict[str, int], version: int) -> None:
        self.rig = Rig(topics={name: (1,) * count for name, count in layout.items()}, retries=1)
        self.rig.pool.version = version
        self.version = version
        self.keys = [(name, partition) for name, count in layout.items() for partition in range(count)]
        self.futures = {key: self.rig.send(b"v", key[1], key[0]) for key in self.keys}
        self.told = dict.fromkeys(self.keys, 0)
        for key, future in self.futures.items():
            future.add_done_callback(partial(self._on_done, key))
        self.rig.turn()
        (self.sent,) = self.rig.produce_requests

    def _on_done(self, key: tuple[str, int], _: object) -> None:
        self._count(key)

    def _count(self, key: tuple[str, int]) -> None:
        self.told[key] += 1

    @property
    def sent_request(self) -> Any:
        return self.sent.produce

    def receive(self, body: bytes) -> None:
        """Give the bytes to the sender."""
        self.rig.complete(self.sent, body=memoryview(body))
        self.rig.turn()

    def end(self) -> None:
        """Close: every record has one outcome, all memory is back."""
        self.rig.sender.close(0)
        self.rig.sender.run()
        assert self.rig.sender.fatal_error is None
        assert self.told == dict.fromkeys(self.keys, 1)
        assert self.rig.accumulator.pool.in_use == 0
        assert self.rig.accumulator.pool.refused_release_count == 0


@st.composite
def partitions(draw: st.DrawFn, index: int, version: int) -> PartitionProduceResponse:
    code = draw(CODES)
    more: dict[str, Any] = {}
    if version >= 8 and draw(st.booleans()):
        more["record_errors"] = [
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=draw(TEXT))
            for i in draw(st.lists(st.integers(-3, 5), max_size=3))
        ]
        more["error_message"] = draw(TEXT)
    if version >= 10 and draw(st.booleans()):
        more["current_leader"] = LeaderIdAndEpoch(
            leader_id=draw(st.integers(-1, 3)), leader_epoch=draw(st.integers(-1, 2**31 - 1))
        )
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=draw(OFFSETS), log_append_time_ms=draw(OFFSETS), **more
    )


@st.composite
def answers(draw: st.DrawFn, world: World) -> ProduceResponse:
    """What a broker could say: mostly each partition once, sometimes repeated, left out or never asked for."""
    by_topic: dict[str, list[int]] = {}
    for name, partition in draw(st.permutations(world.keys)):
        by_topic.setdefault(name, []).append(partition)
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(sorted(by_topic)))
        by_topic[name] = draw(st.lists(st.integers(-1, 6), max_size=8))
    if draw(st.integers(0, 9)) == 0:
        by_topic[draw(st.sampled_from(["a", "stranger", ""]))] = [0]
    endpoints = draw(st.lists(st.integers(0, 3), max_size=2)) if world.version >= 10 else []
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="" if world.version >= 13 else name,
                topic_id=topic_uuid(name) if world.version >= 13 else WITHOUT_ID,
                partition_responses=[draw(partitions(index, world.version)) for index in indexes],
            )
            for name, indexes in by_topic.items()
        ],
        throttle_time_ms=draw(st.integers(-1, 2**31 - 1)),
        node_endpoints=[NodeEndpoint(node_id=i, host="h", port=1, rack=draw(TEXT)) for i in endpoints],
    )


def is_plain_success(world: World, response: ProduceResponse) -> bool:
    """Whether each batch is answered once, with code 0, and nothing else is said."""
    names = {topic_uuid(name): name for name, _ in world.keys}
    said = [
        (names.get(cast(uuid.UUID, topic.topic_id)) if world.version >= 13 else topic.name, partition)
        for topic in response.responses
        for partition in topic.partition_responses
    ]
    keys = sorted((str(name), partition.index) for name, partition in said)
    return (
        keys == sorted(world.keys)
        and not response.node_endpoints
        and all(
            partition.error_code == 0
            and not partition.record_errors
            and partition.error_message is None
            and partition.current_leader == LeaderIdAndEpoch()
            for _, partition in said
        )
    )


@given(LAYOUTS, VERSIONS, st.data())
@settings(max_examples=150)
def test_fast_path_settles_what_the_declaration_calls_plain_success_and_nothing_else(
    layout: dict[str, int], version: int, data: st.DataObject
) -> None:
    world = World(layout, version)
    response = data.draw(answers(world))
    body = response.encode(version)
    assert ProduceResponse.decode(body, version) == response
    throttle_ms = settle_all(world.sent_request, body, version)
    if throttle_ms is None:
        assert not any(world.told.values())
        if is_plain_success(world, response):
            # Told in an unusual way at most: an empty topic, for one.
            assert len(response.responses) != len({name for name, _ in world.keys})
    else:
        assert is_plain_success(world, response)
        assert throttle_ms == response.throttle_time_ms
        assert set(world.told.values()) == {1}
        for topic in response.responses:
            for partition in topic.partition_responses:
                (metadata,) = (
                    future.result(0)
                    for (name, index), future in world.futures.items()
                    if index == partition.index and (topic_uuid(name) == topic.topic_id or name == topic.name)
                )
                assert metadata.offset == partition.base_offset
                if partition.log_append_time_ms >= 0:
                    assert metadata.timestamp == partition.log_append_time_ms
    world.end()


@given(LAYOUTS, VERSIONS, st.data())
@settings(max_examples=150)
def test_sender_does_to_each_batch_what_its_answer_says(
    layout: dict[str, int], version: int, data: st.DataObject
) -> None:
    world = World(layout, version)
    response = data.draw(answers(world))
    world.receive(response.encode(version))
    names = {topic_uuid(name): name for name, _ in world.keys}
    first: dict[tuple[str | None, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = names.get(cast(uuid.UUID, topic.topic_id)) if version >= 13 else topic.name
        for partition in topic.partition_responses:
            first.setdefault((name, partition.index), partition)
    is_believed = first.keys() <= set(world.keys)
    for key, future in world.futures.items():
        if is_believed and key in first and first[key].error_code in (0, 46):
            assert future.succeeded()
        if is_believed and key in first and first[key].error_code in (29, 87, 999):
            assert future.failed()
        if not is_believed or key not in first:
            assert not future.done()
    assert bool(world.rig.pool.disconnected) is not is_believed
    world.end()


def mutated(body: bytes, rng: random.Random) -> bytes:
    """The bytes with something wrong: cut, longer, flipped, or a hostile length written somewhere."""
    kind = rng.randrange(5)
    at = rng.randrange(len(body) + 1)
    if kind == 0:
        return body[:at]
    if kind == 1:
        return body + rng.randbytes(rng.randrange(1, 20))
    if kind == 2:
        out = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        return bytes(out)
    if kind == 3:
        hostile = rng.choice(
            [
                b"\xff\xff\xff\xff",
                b"\x7f\xff\xff\xff",
                b"\x80\x00\x00\x00",
                b"\xff\xff\xff\xff\x0f",
                b"\x80" * 9,
                b"\x00",
            ]
        )
        return body[:at] + hostile + body[at + len(hostile) :]
    return body[:at] + rng.randbytes(rng.randrange(30)) + body[at:]


@given(LAYOUTS, VERSIONS, st.randoms(use_true_random=False), st.data())
@settings(max_examples=200)
def test_damaged_answers_settle_all_or_nothing_at_once_and_each_record_once(
    layout: dict[str, int], version: int, rng: random.Random, data: st.DataObject
) -> None:
    world = World(layout, version)
    body = data.draw(answers(world)).encode(version)
    for _ in range(4):
        body = mutated(body, rng)
        started = time.process_time()
        try:
            ProduceResponse.decode(body, version)
            is_readable = True
        except CorruptDataError:
            is_readable = False
        throttle_ms = settle_all(world.sent_request, body, version)
        assert time.process_time() - started < 1
        if throttle_ms is None:
            assert not any(world.told.values())
        else:
            assert is_readable, "the fast path takes nothing that the declaration refuses"
            assert set(world.told.values()) == {1}
            break
        if not body:
            break
    if not any(world.told.values()):
        world.receive(body)
    world.end()


@given(VERSIONS, st.binary(max_size=200))
@settings(max_examples=150)
def test_garbage_cuts_the_connection_and_loses_nothing(version: int, body: bytes) -> None:
    world = World({"a": 2, "d": 1}, version)
    world.receive(body)
    for _ in range(3):
        world.rig.turn(200)
    world.end()


@pytest.mark.parametrize("version", range(3, 14))
def test_every_cut_of_a_success_is_refused_by_both_parsers(version: int) -> None:
    world = World({"a": 3, "d": 2}, version)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="" if version >= 13 else name,
                topic_id=topic_uuid(name) if version >= 13 else WITHOUT_ID,
                partition_responses=[
                    PartitionProduceResponse(index=i, error_code=0, base_offset=i) for i in range(count)
                ],
            )
            for name, count in (("a", 3), ("d", 2))
        ],
        throttle_time_ms=0,
    )
    body = response.encode(version)
    for size in range(len(body)):
        assert settle_all(world.sent_request, body[:size], version) is None
        with pytest.raises(CorruptDataError):
            ProduceResponse.decode(body[:size], version)
    assert settle_all(world.sent_request, body, version) == 0
    world.end()


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_counts_beyond_the_bytes_cost_neither_memory_nor_time(version: int) -> None:
    world = World({"a": 1}, version)
    many = b"\xff\xff\xff\xff\x07" if version >= 9 else struct.pack(">i", 2**31 - 1)
    started = time.process_time()
    assert settle_all(world.sent_request, many, version) is None
    with pytest.raises(CorruptDataError):
        ProduceResponse.decode(many, version)
    assert time.process_time() - started < 1
    world.end()


def test_ids_are_compared_as_a_whole() -> None:
    world = World({"a": 1}, 13)
    close = uuid.UUID(int=topic_uuid("a").int ^ 1)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="",
                topic_id=close,
                partition_responses=[PartitionProduceResponse(index=0, error_code=0, base_offset=1)],
            )
        ],
        throttle_time_ms=0,
    )
    assert settle_all(world.sent_request, response.encode(13), 13) is None
    world.receive(response.encode(13))
    assert len(world.rig.pool.disconnected) == 1
    world.end()
