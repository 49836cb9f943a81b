"""What type checkers say of programs that use the package, right ones and wrong ones."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkaprod import AsyncProducer, Producer, ProducerConfig

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
from pathlib import Path
from typing import Any

import numpy as np
from kafkaprod import AsyncProducer, Column, Headers, Producer, ProducerConfig

offsets = np.arange(3, dtype=np.int64)
Column.from_offsets(offsets, b"ab")
Column.from_offsets(offsets, np.zeros(3, np.uint8), np.packbits([1]))
Column.from_views(np.zeros(3, np.uint8), [np.zeros(3, np.uint8), b"a"])
Column.from_fixed(np.zeros(3), 8).take(np.array([1], np.int64))
Column.from_list([np.zeros(3, np.uint8), b"a", None])
Headers.from_columns(offsets, Column.nulls(), Column.nulls())


def send(producer: Producer) -> int:
    producer.send_columns("t", (offsets, b"ab"), timestamps_ms=offsets)
    producer.send_many("t", [b"a"], partitions=np.zeros(1, np.int32))
    return producer.send("t", b"v", key=b"k", headers=[("h", b"1")]).result(timeout=1.0).offset


async def send_later(producer: AsyncProducer) -> int:
    await producer.send_many("t", [b"a"], keys=[b"k"])
    await producer.send_columns("t", (offsets, b"ab"))
    return (await producer.send_and_wait("t", b"v", partition=0)).offset


def configured(options: dict[str, Any]) -> ProducerConfig:
    Producer(bootstrap_servers=["a:1", ("b", 2)], linger_ms="5", compression_type=None, ssl_cafile=Path("ca.pem"))
    Producer({"linger.ms": 5}, queue_buffering_max_ms=5, key_serializer=str.encode, enable_idempotence=True)
    Producer(compression_codec="zstd", security_protocol="SASL_SSL", sasl_mechanism="MINE")
    Producer(options, **options)
    return ProducerConfig.from_options(options, acks="all", sasl_jaas_config="...")
"""
WRONG = """
from kafkaprod import AsyncProducer, Column, Producer, ProducerConfig
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import KafkaError

EmbeddedBroker(topics=["t"])  # wrong: a list
EmbeddedCluster(detection="slow")  # wrong: no such way
Column.from_offsets([0, 1], b"a")  # wrong: a list has no buffer
Column.from_list(["text"])  # wrong: text


def send(producer: Producer) -> None:
    producer.send(1, b"v")  # wrong: the topic is a number
    producer.send("t", b"v", partition="0")  # wrong: the partition is text
    producer.send("t", b"v").result().ofset  # wrong: misspelt
    producer.send("t", b"v", headers={"h": 1})  # wrong: a number
    producer.send("t", b"v", headers=[("h", "text")])  # wrong: text
    producer.send("t", b"v", headers=[b"h"])  # wrong: no pairs
    producer.send("t", b"v", timestamp_ms="now")  # wrong: text
    producer.send("t", b"v").result("1")  # wrong: text
    producer.send_many("t", 5)  # wrong: a number
    producer.begin_transaction("t")  # wrong: takes nothing
    producer.metrics().records  # wrong: a dict
    producer.close(timeout="1")  # wrong: text
    producer.send_colums("t", (b"", b""))  # wrong: misspelt
    producer.flush("1")  # wrong: text
    AsyncProducer(bootstrap_servers="a:1", linger_mss=3)  # wrong: misspelt
    Producer(bootstrap_servers="a:1", linger_mss=3)  # wrong: misspelt
    Producer(bootstrap_servers="a:1", acks=object())  # wrong: an object
    Producer(bootstrap_servers="a:1", acks="most")  # wrong: no such value
    Producer(bootstrap_servers=9092)  # wrong: a number
    Producer(bootstrap_servers="a:1", batch_size=1.5)  # wrong: a fraction
    Producer(None, "a:1")  # wrong: an option without a name
    Producer(bootstrap_servers="a:1", compression_type="lzz")  # wrong: no such codec
    Producer(bootstrap_servers="a:1", security_protocol="TLS")  # wrong: no such protocol
    AsyncProducer(bootstrap_servers="a:1", buffer_full_policy="blok")  # wrong: misspelt
    ProducerConfig.from_options(buffer_memory=None)  # wrong: None


async def send_later(producer: AsyncProducer) -> None:
    await producer.send_many("t", [b"a"], key=[b"k"])  # wrong: keys
    await producer.send_columns("t", (b"", b""), partition="0")  # wrong: text
    await producer.send("t", b"v", headers=[("h", 1)])  # wrong: a number
    (await producer.send_and_wait("t", b"v")).offsett  # wrong: misspelt
    await producer.send_and_wait("t", b"v", header=[])  # wrong: headers


def is_worth_another_try(error: KafkaError) -> bool:
    return error.retryable  # wrong: misspelt
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of both programs."""
    directory = tmp_path_factory.mktemp("programs")
    programs = {"right.py": RIGHT, "wrong.py": WRONG}
    for name, text in programs.items():
        (directory / name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    command += [str(directory / name) for name in programs]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def test_documented_uses_pass(complaints: list[str]) -> None:
    assert [line for line in complaints if "wrong.py" not in line] == []


@pytest.mark.parametrize(
    "call", [Producer.__init__, AsyncProducer.__init__, ProducerConfig.from_options, ProducerConfig.from_file]
)
def test_containers_can_resolve_the_hints_of_what_makes_a_producer(call: Callable[..., object]) -> None:
    assert {"options", "more"} & typing.get_type_hints(call).keys()
    assert inspect.signature(call, eval_str=True).parameters


def test_mistakes_are_found(complaints: list[str]) -> None:
    found = {int(line.split(":")[1]) for line in complaints if "wrong.py" in line}
    assert found == {number for number, line in enumerate(WRONG.splitlines(), 1) if "# wrong" in line}
