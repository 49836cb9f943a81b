"""Batches that expire while their request is being written: their memory stays theirs until the request is over.

KAFKA-19012 (CVE-2026-35554): a client gave the memory of an expired batch back while the socket still had to read it,
the next batch filled it, and records of one topic were appended to another. Here a peer reads slowly through a tiny
receive buffer, so that requests are half written when their batches reach delivery_timeout_ms=200. Two topics have
records of equal size. The peer checks the CRC of every batch and that each record is of the topic and partition in
whose request it came. Five ways in which memory comes back: expiry, fatal error, close(0), disconnect, split.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod._core.records.batch_reader import RecordBatchReader
from kafkaprod.errors import BufferFullError, DeliveryTimeoutError, ProducerClosedError
from kafkaprod.results.block import BlockResult
from tests.fault.producer_load import memory_not_returned
from tests.fault.scripted_broker import ScriptedCluster
from tests.kafka.cluster import wait_until

TOPICS = ("a", "b")
PARTITIONS = 128
RECORDS_PER_BLOCK = 6
VALUE_BYTES = 150
BYTES_PER_S = 1_000_000
POISON = b"\xdd" * 16  # what a debug build fills freed memory with
_STAMP = struct.Struct(">cHQ")
PATHS = ("expiry", "fatal error", "close", "disconnect", "split")


def make_value(topic: str, partition: int, number: int) -> bytes:
    """A value that says where it belongs."""
    body = _STAMP.pack(topic.encode(), partition, number)
    body += bytes(VALUE_BYTES - len(body) - 4)
    return body + struct.pack(">I", zlib.crc32(body))


class Peer:
    """Counts and checks what comes out of the wire."""

    def __init__(self) -> None:
        self.received = 0
        self.byte_count = 0
        self.misrouted = 0
        self.damaged = 0
        self.poisoned = 0
        self._tail = b""

    def check_batch(self, topic: str, partition: int, batch: RecordBatchReader) -> None:
        """Every record must be of this topic and partition; the CRC was checked before."""
        for record in batch.records():
            value = record.value or b""
            self.received += 1
            if len(value) != VALUE_BYTES or struct.pack(">I", zlib.crc32(value[:-4])) != value[-4:]:
                self.damaged += 1
            elif _STAMP.unpack_from(value)[:2] != (topic.encode(), partition):
                self.misrouted += 1

    def check_bytes(self, data: memoryview) -> None:
        """Frames that are cut off are looked at, too: no freed memory may show."""
        self.byte_count += len(data)
        joined = self._tail + bytes(data)
        self.poisoned += POISON in joined
        self._tail = joined[-len(POISON) + 1 :]


class Outcomes:
    """What became of the blocks; each must come back once."""

    def __init__(self) -> None:
        self.blocks = 0
        self.records = 0
        self.completed = 0
        self.by_error: Counter[str] = Counter()
        self.expired_batches = 0
        self.expired_records = 0
        self._lock = threading.Lock()

    def sent(self, result: BlockResult) -> None:
        """Wait for the block's outcome in the background."""
        self.blocks += 1
        self.records += len(result)
        result.add_done_callback(self._note)

    def _note(self, result: BlockResult) -> None:
        with self._lock:
            self.completed += 1
            errors = list(result.errors.values())
            self.by_error.update(type(error).__name__ for error in errors)
            self.by_error["delivered"] += len(result) - len(errors)
            in_flight = [each for each in errors if isinstance(each, DeliveryTimeoutError) and each.possibly_persisted]
            self.expired_records += len(in_flight)
            # A batch has one error object; one that holds rows of two blocks counts once only if they share it.
            new = {id(each): each for each in in_flight}
            self.expired_batches += sum(not getattr(each, "_counted", False) for each in new.values())
            for each in new.values():
                each._counted = True  # type: ignore[attr-defined]


def options_of(cluster: ScriptedCluster, *, idempotent: bool) -> dict[str, Any]:
    """Small batches, a pool that is always nearly full, so that memory given back is used again at once."""
    return {
        "bootstrap_servers": cluster.bootstrap,
        "enable_idempotence": idempotent,
        "delivery_timeout_ms": 200,
        "request_timeout_ms": 200,
        "linger_ms": 0,
        "batch_size": 1024,
        "buffer_memory": 1 << 20,
        "max_request_size": 64 << 10,
        "max_block_ms": 50,
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 5,
        "send_buffer_bytes": 4096,
    }


class Cell:
    """One path: producers that fill their pool against a slow peer until enough batches expired in flight."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.outcomes = Outcomes()
        self.peer = Peer()
        self.memory_not_returned = 0
        self.releases = 0  # how often the path itself was taken
        self.producers = 0
        self._random = random.Random(seed)
        self._number = 0

    def run(self, expiries: int, timeout_s: float) -> None:
        """Go on until so many batches expired in flight."""
        topics = dict.fromkeys(TOPICS, PARTITIONS)
        limit = 400 if self.path == "split" else None
        deadline_s = time.monotonic() + timeout_s
        with ScriptedCluster(topics, receive_buffer_bytes=8192, keeps_records=False, largest_batch=limit) as cluster:
            cluster.on_batch = self.peer.check_batch
            cluster.on_bytes = self.peer.check_bytes
            while self.outcomes.expired_batches < expiries:
                assert time.monotonic() < deadline_s, f"only {self.outcomes.expired_batches} expiries in {timeout_s} s"
                self._one_producer(cluster, expiries)

    def _one_producer(self, cluster: ScriptedCluster, expiries: int) -> None:
        cluster.bytes_per_s = 0
        self.producers += 1
        producer = Producer(options_of(cluster, idempotent=self.producers % 2 == 0))
        for topic in TOPICS:
            wait_until(partial(knows, producer, topic), 10, f"metadata of {topic}")
        cluster.bytes_per_s = BYTES_PER_S
        end = self._path_end(producer, cluster)
        ends_producer = self.path in ("fatal error", "close")
        target = min(expiries, self.outcomes.expired_batches + (200 if ends_producer else 1000))
        give_up_s = time.monotonic() + 30
        while self.outcomes.expired_batches < target and time.monotonic() < give_up_s:
            self._fill(producer)
            if not ends_producer:
                end()
        if ends_producer:
            self._fill(producer)
            end()
        cluster.bytes_per_s = 0
        if not ends_producer:
            wait_until(lambda: self.outcomes.completed == self.outcomes.blocks, 20, "outcome of every record")
            self.memory_not_returned += memory_not_returned(producer)
        producer.close(20)
        wait_until(lambda: self.outcomes.completed == self.outcomes.blocks, 20, "outcome of every record")
        if ends_producer:
            self.memory_not_returned += memory_not_returned(producer)

    def _fill(self, producer: Producer) -> None:
        """Send blocks of both topics until the pool is full."""
        for _ in range(64):
            topic, partition = self._random.choice(TOPICS), self._random.randrange(PARTITIONS)
            values = [make_value(topic, partition, self._number + i) for i in range(RECORDS_PER_BLOCK)]
            self._number += RECORDS_PER_BLOCK
            try:
                self.outcomes.sent(producer.send_many(topic, values, partition=partition))
            except BufferFullError as error:
                self.outcomes.sent(error.result)
                return
            except ProducerClosedError:
                return

    def _path_end(self, producer: Producer, cluster: ScriptedCluster) -> Callable[[], None]:
        def nothing() -> None:
            self.releases += 1

        def disconnect() -> None:
            self.releases += cluster.reset_connections()

        def close_at_once() -> None:
            self.releases += 1
            with contextlib.suppress(TimeoutError):  # the callbacks of this test may take longer than close() waits
                producer.close(0)

        def die() -> None:
            self.releases += 1
            producer._engine.sender._upkeep.refresh_metadata = _fail_the_thread  # type: ignore[method-assign, assignment]
            producer._engine.sender.wakeup()

        ends = {"disconnect": disconnect, "close": close_at_once, "fatal error": die}
        return ends.get(self.path, nothing)

    def check(self) -> str:
        """Nothing wrong was seen; a line of counts."""
        peer, outcomes = self.peer, self.outcomes
        line = (
            f"{self.path}: {outcomes.expired_batches} batches ({outcomes.expired_records} records) expired in flight, "
            f"{self.releases} releases, {peer.received} records received, {peer.misrouted} misrouted, "
            f"{peer.damaged} damaged, {peer.poisoned} poisoned, {self.memory_not_returned} bytes not returned; "
            f"{dict(outcomes.by_error)}"
        )
        print(line, flush=True)
        assert (peer.misrouted, peer.damaged, peer.poisoned, self.memory_not_returned) == (0, 0, 0, 0), line
        assert outcomes.completed == outcomes.blocks, line
        assert peer.byte_count > 0, line
        # A connection that is reset may never have had a whole request.
        assert peer.received > 0 or self.path == "disconnect", line
        return line


def knows(producer: Producer, topic: str) -> bool:
    """Whether metadata came; on a busy machine it may miss the request timeout of 200 ms, and is asked again."""
    try:
        return bool(producer.partitions_for(topic))
    except (TimeoutError, ConnectionError):
        return False


def _fail_the_thread(_: int) -> int:
    raise RuntimeError("the sender thread is made to fail")


def run_path(path: str, expiries: int, timeout_s: float) -> None:
    cell = Cell(path, seed=PATHS.index(path))
    cell.run(expiries, timeout_s)
    cell.check()


@pytest.mark.parametrize("path", PATHS)
def test_memory_of_expired_batches_is_not_used_again_too_early(path: str) -> None:
    run_path(path, expiries=600, timeout_s=60)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("path", PATHS)
def test_many_expiries(path: str) -> None:
    run_path(path, int(os.environ.get("KAFKAPROD_EXPIRIES", "100000")) // len(PATHS), timeout_s=3600)
