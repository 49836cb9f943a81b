"""The producer and a real broker with a proxy between them that cuts, loses, repeats, swaps, delays and falsifies."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kafkaprod import Producer
from tests.fault.producer_load import Load
from tests.fault.record_checker import check_records
from tests.kafka.cluster import KafkaCluster
from tests.kafka.proxy import INIT_PRODUCER_ID, METADATA, PRODUCE, FaultProxy, Rule
from tests.kafka.proxy_actions import (
    Action,
    Cut,
    Delay,
    Dribble,
    Drop,
    DropAndReset,
    Duplicate,
    FlipBit,
    Forward,
    ForwardAndReset,
    Replace,
    Replay,
    RewriteCorrelationId,
    RewriteLength,
    Swap,
)
from tests.kafka.reading import read_all

pytestmark = pytest.mark.external

PARTITIONS = 4
OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 2000,
    "socket_connection_setup_timeout_ms": 1000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "batch_size": 2000,
}


@dataclass(frozen=True)
class Fault:
    """What the proxy does to one frame; `is_timeout`: the producer finds out by its request timeout only."""

    name: str
    on_reply: bool
    make: Callable[[random.Random], Action]
    is_timeout: bool = False


# A correlation id made smaller by one is no fault of its own here: behind a lost reply it is a lie that nobody can
# notice (`send_two` and its tests).
FAULTS = [
    Fault("request cut by RST", False, lambda source: Cut(source.randrange(2000))),
    Fault("request cut by FIN", False, lambda source: Cut(source.randrange(2000), reset=False)),
    Fault("request delivered, then RST", False, lambda _: ForwardAndReset()),
    Fault("request lost", False, lambda _: Drop(), is_timeout=True),
    Fault("request in pieces", False, lambda _: Dribble(100)),
    Fault("request delayed", False, lambda _: Delay(0.05)),
    Fault("reply cut by RST", True, lambda source: Cut(source.randrange(60))),
    Fault("reply cut by FIN", True, lambda source: Cut(source.randrange(60), reset=False)),
    Fault("reply lost, RST", True, lambda _: DropAndReset()),
    Fault("reply lost", True, lambda _: Drop(), is_timeout=True),
    Fault("reply twice", True, lambda _: Duplicate()),
    Fault("reply replayed", True, lambda _: Replay()),
    Fault("replies swapped", True, lambda _: Swap(), is_timeout=True),
    Fault("reply delayed", True, lambda _: Delay(0.05)),
    Fault("reply byte by byte", True, lambda _: Dribble(1)),
    Fault("correlation id changed", True, lambda source: RewriteCorrelationId(source.choice((1, 2, 1000)))),
    Fault("length negative", True, lambda _: RewriteLength(-1)),
    Fault("length 0", True, lambda _: RewriteLength(0)),
    Fault("length too long", True, lambda source: RewriteLength(source.choice((200_000_000, 0x7FFFFFFF)))),
    Fault("length too short", True, lambda source: RewriteLength(source.randrange(4, 20))),
    Fault("HTTP instead", True, lambda _: Replace(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    Fault("TLS alert instead", True, lambda _: Replace(bytes.fromhex("15030300020246"))),
]
# Bits that decide what a reply says: its length, its correlation id, the topic count and topic id of version 13.
PREFIX_BITS = range(32, 8 * 26)


def add_fault(proxy: FaultProxy, fault: Fault, source: random.Random, api_key: int = PRODUCE) -> Rule:
    add = proxy.on_reply if fault.on_reply else proxy.on_request
    return add(api_key, fault.make(source))


def check(load: Load, kafka: KafkaCluster, *, failures_allowed: bool = False) -> str:
    report = load.report(kafka.direct_bootstrap())
    assert report.is_ok, str(report)
    assert failures_allowed or report.failed == 0, load.errors[:3]
    return str(report)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faulty_produce_exchanges(kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str, fault: Fault) -> None:
    """The retry is deduplicated by the broker and no other request's records are completed."""
    source = random.Random(fault.name)
    kafka.create_topic(topic_name, PARTITIONS)
    with Load(kafka.bootstrap("PROXIED"), {topic_name: PARTITIONS}, threads=1, **OPTIONS) as load:
        load.wait_for_progress(20)
        for _ in range(1 if fault.is_timeout else 6):
            rule = add_fault(kafka_proxy, fault, source)
            rule.wait_until_hit()
            load.wait_for_progress(30)
        kafka_proxy.clear()
        load.wait_for_progress(30)
    check(load, kafka)


@pytest.mark.parametrize("api_key", [METADATA, INIT_PRODUCER_ID, 18])
def test_faulty_exchanges_before_the_first_record(
    kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str, api_key: int
) -> None:
    """Whatever happens to metadata, the producer id or the handshake, the first records are only late."""
    kafka.create_topic(topic_name, PARTITIONS)
    ledgers, pool_bytes = [], 0
    for fault in FAULTS:
        rule = add_fault(kafka_proxy, fault, random.Random(fault.name), api_key)
        with Load(kafka.bootstrap("PROXIED"), {topic_name: PARTITIONS}, threads=1, **OPTIONS) as load:
            load.wait_for_progress(10)
        assert rule.hits == 1
        kafka_proxy.clear()
        ledgers += load.ledgers()
        pool_bytes += load.pool_bytes_not_returned
    report = check_records(ledgers, load.read(kafka.direct_bootstrap()), pool_bytes_not_returned=pool_bytes)
    assert report.is_ok, str(report)
    assert report.failed == 0


def flip_bits(kafka: KafkaCluster, proxy: FaultProxy, topic: str, bits: list[int]) -> None:
    """Bits that make a reply contradict its request. Flips of an offset or code are a lie nobody can notice."""
    kafka.create_topic(topic, PARTITIONS)
    with Load(kafka.bootstrap("PROXIED"), {topic: PARTITIONS}, threads=1, **OPTIONS) as load:
        load.wait_for_progress(20)
        for bit in bits:
            rule = proxy.on_reply(PRODUCE, FlipBit(bit))
            rule.wait_until_hit(20)
            load.wait_for_progress(5)
    print(f"{len(bits)} bits: {check(load, kafka)}")


def test_flipped_bits_in_the_head_of_replies(kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str) -> None:
    flip_bits(kafka, kafka_proxy, topic_name, random.Random(1).sample(PREFIX_BITS, 40))


@dataclass(frozen=True)
class Told:
    """What became of two records: the offsets told, those in the log, and how many connections it took."""

    offsets: tuple[int, int]
    in_log: tuple[int, int]
    connections: int


def send_two(kafka: KafkaCluster, proxy: FaultProxy, topic: str, partitions: tuple[int, int], *, is_lost: bool) -> Told:
    """The second reply comes under the number of the first, which is lost or was passed on.

    A produce response names no request but by its correlation id: it has topics and partitions, but neither sequences
    nor the number of records (protocol guide, "Produce API"; requests are answered in their order).
    """
    kafka.create_topic(topic, PARTITIONS)
    with Producer(bootstrap_servers=kafka.bootstrap("PROXIED"), linger_ms=0, **OPTIONS) as producer:
        for partition in {*partitions}:  # only then may a partition have two batches in flight
            producer.send(topic, b"earlier", partition=partition).result(30)
        before = len(proxy.frames)
        first_reply = proxy.on_reply(PRODUCE, Drop() if is_lost else Forward())
        second_reply = proxy.on_reply(PRODUCE, RewriteCorrelationId(-1))
        first = producer.send(topic, b"first", partition=partitions[0])
        first_reply.wait_until_hit()
        second = producer.send(topic, b"second", partition=partitions[1])
        second_reply.wait_until_hit()
        offsets = first.result(30).offset, second.result(30).offset
        connections = len({frame.connection for frame in proxy.frames[before:] if frame.api_key == PRODUCE})
    log = read_all(kafka.direct_bootstrap(), topic)
    (first_offset,), (second_offset,) = (
        [record.offset for record in log[partition] if record.value == value]
        for partition, value in zip(partitions, (b"first", b"second"), strict=True)
    )
    return Told(offsets, (first_offset, second_offset), connections)


def test_a_reply_under_the_number_of_one_that_came_is_noticed(
    kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str
) -> None:
    told = send_two(kafka, kafka_proxy, topic_name, (0, 0), is_lost=False)
    assert told == Told(offsets=(1, 2), in_log=(1, 2), connections=2)


def test_a_reply_under_the_number_of_a_lost_one_of_another_partition_is_noticed(
    kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str
) -> None:
    told = send_two(kafka, kafka_proxy, topic_name, (0, 1), is_lost=True)
    assert told == Told(offsets=(1, 1), in_log=(1, 1), connections=2)


def test_a_reply_under_the_number_of_a_lost_one_of_the_same_partition_is_an_answer_to_it(
    kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str
) -> None:
    """The bytes are those of a broker that answered the first request, saying offset 2, and not yet the second.

    Both are in the log once, and both were acknowledged; only the offset told for the first is the second's.
    """
    told = send_two(kafka, kafka_proxy, topic_name, (0, 0), is_lost=True)
    assert told == Told(offsets=(2, 2), in_log=(1, 2), connections=2)


def random_mix(kafka: KafkaCluster, proxy: FaultProxy, topic: str, count: int, seed: int) -> None:
    print(f"seed {seed}")
    source = random.Random(seed)
    kafka.create_topic(topic, PARTITIONS)
    hits = 0
    with Load(kafka.bootstrap("PROXIED"), {topic: PARTITIONS}, seed=seed, **OPTIONS) as load:
        load.wait_for_progress(20)
        quick = [fault for fault in FAULTS if not fault.is_timeout]
        while hits < count:  # a rule for metadata may not find a request within its round
            print(f"{hits} of {count} faults", flush=True)
            for _ in range(10):
                fault = source.choice(FAULTS if source.random() < 0.02 else quick)
                rule = add_fault(proxy, fault, source, source.choice((PRODUCE, PRODUCE, PRODUCE, METADATA)))
                if rule.api_key == PRODUCE:
                    rule.wait_until_hit(30)
                    load.wait_for_progress(2)
                hits += rule.hits
            if source.random() < 0.3:
                proxy.cut_all(reset=source.random() < 0.5)
            proxy.clear()
    print(f"seed {seed}: {hits} faults, {check(load, kafka)}")


@pytest.mark.parametrize("seed", [1, 2])
def test_random_mix_of_faults(kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str, seed: int) -> None:
    random_mix(kafka, kafka_proxy, topic_name, 60, seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_long_mix_of_faults(kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str) -> None:
    random_mix(kafka, kafka_proxy, topic_name, int(os.environ.get("KAFKAPROD_PROXY_FAULTS", "5000")), int(time.time()))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_bit_of_the_head_of_replies(kafka: KafkaCluster, kafka_proxy: FaultProxy, topic_name: str) -> None:
    flip_bits(kafka, kafka_proxy, topic_name, list(PREFIX_BITS))
