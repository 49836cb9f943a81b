"""Attacks on a broker of its own, one at a time, while an honest client asks: how long it waits, what memory it takes.

    python -m tests.campaigns.hostile_clients [attack ...] [--seconds 5] [--large]

Each attack is made in another process, again and again. The honest client opens a connection, produces a record, reads
it back and asks for metadata, ten times a second. Exit code 1 if a wait exceeds
`MAX_WAIT_S`, a turn of the broker's event loop `MAX_TURN_S` of CPU time, or the memory `MAX_RESIDENT_BYTES`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.compression import CODEC_IDS, make_codec
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.hostile_settings import (
    MANY,
    deleted_acls,
    frame_of,
    large_offsets,
    looked_up_acls,
    many_credentials,
    many_options,
    many_quotas,
    validated_topics,
)
from tests.support.broker.measured_broker import LongestTurn, longest_turn, measured_brokers
from tests.support.net.raw_client import RawClient

MAX_WAIT_S = 1.0
MAX_TURN_S = 0.25
"""CPU time of the broker's event loop before another client gets its turn."""
MAX_RESIDENT_BYTES = 300 << 20
MIB = 1 << 20
TOPIC = "orders"
MANY_PARTITIONS = {"many": 10_000}
MANY_TOPICS = {f"many-{number}": 10 for number in range(1_000)}
USERS = {"ada": "lovelace"}


class Outcome(NamedTuple):
    """Of one attack.

    Attributes:
        longest_wait_s: of the honest client; it grows with what else the machine does.
        busy_s: CPU time that the broker used during one of its waits, at most; it does not.
        longest_turn: of the broker's event loop.
    """

    attack: str
    longest_wait_s: float
    busy_s: float
    request_count: int
    resident_bytes: int
    longest_turn: LongestTurn

    @property
    def is_harmless(self) -> bool:
        """The honest client was served, and the broker stayed small."""
        is_quick = self.longest_wait_s <= MAX_WAIT_S and self.longest_turn.cpu_s <= MAX_TURN_S
        return is_quick and self.resident_bytes <= MAX_RESIDENT_BYTES

    def __str__(self) -> str:
        size = self.resident_bytes / MIB
        return (
            f"{self.attack:32} longest wait {self.longest_wait_s:6.3f} s, {self.busy_s:5.2f} s of CPU,"
            f" in {self.request_count:3} requests, {size:4.0f} MiB,"
            f" longest turn {self.longest_turn.cpu_s:.3f} s of CPU {' '.join(self.longest_turn.apis)}"
        )


# -- payloads ----------------------------------------------------------------------------------------------------------


def zigzag(value: int) -> bytes:
    raw, out = value << 1 ^ value >> 63, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def batch_of(count: int, section: bytes, codec: int, base_timestamp: int) -> bytes:
    """A batch with a right header and checksum around any records section."""
    batch = make_batch([b"x"], codec=codec, section=section)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">qq", batch, 27, base_timestamp, base_timestamp)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def produce(batch: bytes, times: int = 1) -> bytes:
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)] * times)]
    return frame_of(ProduceRequest(acks=-1, timeout_ms=1, topic_data=data), 9)


def raw_frame(api: ApiKey, version: int, body: bytes) -> bytes:
    """A request that no encoder of ours would make; classic header."""
    content = struct.pack(">hhih", api, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content


def compressed(name: str, plain: bytes) -> bytes:
    codec = make_codec(name)
    assert codec is not None
    return codec.compress([plain])


def wrong_times(count: int = 10_000_000) -> bytes:
    record = b"\0" + zigzag(0) + zigzag(0) + b"\x01\x01\x00"
    section = compressed("gzip", (zigzag(len(record)) + record) * count)
    return produce(batch_of(count, section, CODEC_IDS["gzip"], 0))


def wrong_times_in_order(count: int = 100_000) -> bytes:
    records = [b"\0" + zigzag(2**40) + zigzag(index) + b"\x01\x01\x00" for index in range(count)]
    section = compressed("gzip", b"".join([zigzag(len(record)) + record for record in records]))
    return produce(batch_of(count, section, CODEC_IDS["gzip"], 2**41))


def zstd_bomb(times: int = 1) -> bytes:
    block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return produce(batch_of(1, bytes.fromhex("28b52ffd0058") + block * 8192, CODEC_IDS["zstd"], 0), times)


def many_batches() -> bytes:
    """As many batches as a request may have."""
    return produce(bytes(make_batch()), MANY)


def looked_up_by_time() -> Iterator[bytes]:
    """A batch that is small on the wire and large in the reader, then as many look-ups in it as a request may have."""
    now_ms, count = int(time.time() * 1000), 4_000_000
    records = [b"\0" + zigzag(0) + zigzag(index) + b"\x01\x01\x00" for index in range(count)]
    section = compressed("gzip", b"".join([zigzag(len(record)) + record for record in records]))
    yield produce(batch_of(count, section, CODEC_IDS["gzip"], now_ms))
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=now_ms)] * MANY
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=wanted)])
    while True:
        yield frame_of(request, 5)


def topic_of_many_partitions() -> Iterator[bytes]:
    """A topic of 3,000 partitions, deleted and made again."""
    while True:
        topic = CreatableTopic(name="many", num_partitions=3000, replication_factor=1)
        yield frame_of(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        yield frame_of(DeleteTopicsRequest(topic_names=["many"], timeout_ms=1000), 5)


def on_topics(counts: Mapping[str, int]) -> tuple[bytes, list[bytes], bytes]:
    """Return requests that make topics, use all their partitions, and delete them."""
    topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in counts.items()]
    batch = bytes(make_batch())
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=batch) for index in range(count)]
        )
        for name, count in counts.items()
    ]
    wanted = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
        )
        for name, count in counts.items()
    ]
    uses = [
        frame_of(MetadataRequest(topics=None), 9),
        frame_of(ProduceRequest(acks=-1, timeout_ms=1, topic_data=data), 9),
        frame_of(ListOffsetsRequest(replica_id=-1, topics=wanted), 5),
        fetch_all(counts, min_bytes=1),
    ]
    return (
        frame_of(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5),
        uses,
        frame_of(DeleteTopicsRequest(topic_names=list(counts), timeout_ms=60_000), 5),
    )


def fetch_all(counts: Mapping[str, int], min_bytes: int) -> bytes:
    """A Fetch of all partitions, which waits for up to 30 s."""
    topics = [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MIB) for index in range(count)
            ],
        )
        for name, count in counts.items()
    ]
    return frame_of(FetchRequest(max_wait_ms=30_000, min_bytes=min_bytes, topics=topics), 11)


def empty_members() -> bytes:
    member = compressed("gzip", b"")
    return produce(batch_of(1, member * (MIB // len(member) - 10), CODEC_IDS["gzip"], 0))


def same_partition_fetched(count: int = 3_000_000) -> bytes:
    partition = struct.pack(">iqi", 0, 0, MIB)
    head = struct.pack(">iiiib", -1, 500, 1, MIB, 0)
    topic = struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">i", count) + partition * count
    return raw_frame(ApiKey.FETCH, 4, head + struct.pack(">i", 1) + topic)


def metadata_of_many(count: int = 3_000_000) -> bytes:
    return raw_frame(ApiKey.METADATA, 1, struct.pack(">i", count) + b"\0\x04none" * count)


def offsets_of_many(count: int = 25_000_000) -> bytes:
    topic = struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">i", count) + bytes(4) * count
    return raw_frame(ApiKey.OFFSET_FETCH, 1, struct.pack(">h", 1) + b"g" + struct.pack(">i", 1) + topic)


def large_group_metadata(size: int = 40 * MIB) -> bytes:
    body = struct.pack(">h", 1) + b"g" + struct.pack(">ii", 30_000, 60_000) + struct.pack(">h", 0)
    body += struct.pack(">h", 8) + b"consumer" + struct.pack(">i", 1) + struct.pack(">h", 5) + b"range"
    return raw_frame(ApiKey.JOIN_GROUP, 1, body + struct.pack(">i", size) + bytes(size))


# -- attacks -----------------------------------------------------------------------------------------------------------


def repeat(make: Callable[[], bytes]) -> Callable[[str], None]:
    """An attack that sends one request again and again, and reads the answer if there is one."""

    def attack(address: str) -> None:
        frame = make()
        ready()
        while True:
            with suppress(OSError), RawClient(address) as client:
                while True:
                    client.socket.sendall(frame)
                    client.receive_frame()

    return attack


def fresh(make: Callable[[], bytes]) -> Callable[[], Iterator[bytes]]:
    """Requests that are made anew each time, so that each of them changes something."""
    return lambda: iter(make, b"")


def talk(make: Callable[[], Iterator[bytes]], *, is_first_before: bool = False) -> Callable[[str], None]:
    """An attack that sends one request after another, each when the one before is answered.

    Args:
        make: Makes the requests.
        is_first_before: The first one is answered before the attack begins.
    """

    def attack(address: str) -> None:
        frames = make()
        if is_first_before:
            with RawClient(address, patience_s=60) as client:
                client.socket.sendall(next(frames))
                client.receive_frame()
        frame = next(frames)
        ready()
        while True:
            with suppress(OSError), RawClient(address, patience_s=60) as client:
                while True:
                    client.socket.sendall(frame)
                    client.receive_frame()
                    frame = next(frames)

    return attack


def made_and_deleted(counts: Mapping[str, int]) -> Callable[[str], None]:
    """An attack that makes topics and deletes them."""

    def make() -> Iterator[bytes]:
        create, _, delete = on_topics(counts)
        while True:
            yield create
            yield delete

    return talk(make)


def used(counts: Mapping[str, int]) -> Callable[[str], None]:
    """An attack that asks for, writes to and reads all partitions of topics while a fetch waits for all of them."""

    def attack(address: str) -> None:
        create, uses, _ = on_topics(counts)
        with RawClient(address, patience_s=600) as waiting, RawClient(address, patience_s=600) as client:
            client.socket.sendall(create)
            client.receive_frame()
            waiting.socket.sendall(fetch_all(counts, min_bytes=2**31 - 1))
            ready()
            while True:
                for frame in uses:
                    client.socket.sendall(frame)
                    client.receive_frame()

    return attack


def half_requests(address: str) -> None:
    """Twenty connections with 60 of 100 MiB each."""
    part = bytes(MIB)
    ready()
    while True:
        clients = [RawClient(address) for _ in range(20)]
        for client in clients:
            client.socket.setblocking(False)
            client.socket.sendall(struct.pack(">i", 100 * MIB))
        for _ in range(200):
            for client in clients:
                with suppress(OSError):
                    client.socket.send(part)
            time.sleep(0.02)
        for client in clients:
            client.close()


def crowd(count: int) -> Callable[[str], None]:
    """Connections that ask for ApiVersions now and then."""

    def attack(address: str) -> None:
        frame = frame_of(ApiVersionsRequest(), 0)
        clients: list[RawClient] = []
        is_first = True
        while True:
            while len(clients) < count:
                with suppress(OSError):
                    clients.append(RawClient(address, patience_s=2))
            for client in list(clients):
                try:
                    client.socket.sendall(frame)
                    client.receive_frame()
                except OSError:
                    client.close()
                    clients.remove(client)
            if is_first:
                ready()
                is_first = False

    return attack


ATTACKS: dict[str, Callable[[str], None]] = {
    "records with wrong times": repeat(wrong_times),
    "wrong times, right offsets": repeat(wrong_times_in_order),
    "zstd bomb": repeat(zstd_bomb),
    "500 zstd bombs in one request": repeat(partial(zstd_bomb, 500)),
    "24,000 batches in one request": repeat(many_batches),
    "24,000 offsets by time": talk(looked_up_by_time),
    "3,000 partitions": talk(topic_of_many_partitions),
    "empty gzip members": repeat(empty_members),
    "10,000 ACLs deleted": talk(deleted_acls, is_first_before=True),
    "24,000 names in 30,000 ACLs": talk(looked_up_acls, is_first_before=True),
    "8,000 quotas": talk(fresh(many_quotas)),
    "24,000 credentials": talk(fresh(many_credentials)),
    "options of 12,000 groups": talk(many_options),
    "24,000 offsets of 4 KiB": repeat(large_offsets),
    "10,000 topics validated": repeat(validated_topics),
    "half requests": half_requests,
    "one partition fetched 3M times": repeat(same_partition_fetched),
    "metadata of 3M names": repeat(metadata_of_many),
    "offsets of 25M partitions": repeat(offsets_of_many),
    "40 MiB of group metadata": repeat(large_group_metadata),
    "crowd before the login": crowd(900),
    "crowd": crowd(900),
}
LARGE_ATTACKS: dict[str, Callable[[str], None]] = {
    "10,000 partitions": made_and_deleted(MANY_PARTITIONS),
    "1,000 topics": made_and_deleted(MANY_TOPICS),
    "use of 10,000 partitions": used(MANY_PARTITIONS),
    "use of 1,000 topics": used(MANY_TOPICS),
}
"""With 40,000 files and more; they take from seconds to minutes."""
_WITH_LOGIN = {"crowd before the login"}
_ready = multiprocessing.get_context("fork").Event()


def ready() -> None:
    """Called by an attack when it begins."""
    _ready.set()


# -- the honest client -------------------------------------------------------------------------------------------------


def ask(address: str, with_login: bool) -> None:
    """Connect, produce a record and read it, and ask for the topic's metadata."""
    with RawClient(address, patience_s=60) as client:
        if with_login:
            log_in(client)
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=make_batch())])]
        produced = client.call(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data), ProduceResponse, 9)
        outcome = produced.responses[0].partition_responses[0]
        assert outcome.error_code == 0, outcome
        place = FetchPartition(partition=0, fetch_offset=outcome.base_offset, partition_max_bytes=MIB)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[place])])
        assert client.call(request, FetchResponse, 11).responses[0].partitions[0].records
        described = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse, 9)
        assert described.topics[0].partitions, described


def log_in(client: RawClient) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    token = b"\0ada\0lovelace"
    answer = client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 1)
    assert answer.error_code == 0, answer


def peak_resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_attack(name: str, seconds: float) -> Outcome:
    """Run one attack against a new broker."""
    with_login = name in _WITH_LOGIN
    users = USERS if with_login else None
    with (
        quiet_errors(),
        measured_brokers() as turns,
        EmbeddedBroker(topics={TOPIC: 1}, auto_create_topics=False, sasl_users=users) as broker,
    ):
        address = broker.bootstrap_servers
        ask(address, with_login)
        _ready.clear()
        attacker = multiprocessing.get_context("fork").Process(
            target=(ATTACKS | LARGE_ATTACKS)[name], args=(address,), daemon=True
        )
        attacker.start()
        try:
            assert _ready.wait(600), f"{name} did not begin"
            waits, busy_s = [], 0.0
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                began_s, used_s = time.monotonic(), cpu_seconds(broker.pid)
                try:
                    ask(address, with_login)
                    waits.append(time.monotonic() - began_s)
                except OSError:  # a place that was taken is asked for again, and the wait goes on
                    waits.append(ask_until_served(address, with_login, began_s))
                busy_s = max(busy_s, cpu_seconds(broker.pid) - used_s)
                time.sleep(0.1)
            return Outcome(name, max(waits), busy_s, len(waits), peak_resident_bytes(broker.pid), longest_turn(turns))
        finally:
            broker.kill()  # a clean stop with 10,000 partitions takes its time
            attacker.kill()
            attacker.join()


def ask_until_served(address: str, with_login: bool, began_s: float) -> float:
    """Ask again until it works; return the seconds since `began_s`."""
    while time.monotonic() - began_s < 60:
        with suppress(OSError):
            ask(address, with_login)
            break
    return time.monotonic() - began_s


@contextmanager
def quiet_errors() -> Iterator[None]:
    """Throw away what child processes, which inherit it, write to stderr: the broker's line for each refused client."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="attack", help=f"of: {', '.join(ATTACKS | LARGE_ATTACKS)}")
    parser.add_argument("--large", action="store_true", help="those with 10,000 partitions, too")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each attack")
    options = parser.parse_args()
    unknown = set(options.attacks) - set(ATTACKS | LARGE_ATTACKS)
    if unknown:
        parser.error(f"unknown attack: {', '.join(sorted(unknown))}")
    outcomes = []
    for name in options.attacks or (ATTACKS | LARGE_ATTACKS if options.large else ATTACKS):
        outcomes.append(run_attack(name, options.seconds))
        print(outcomes[-1], "" if outcomes[-1].is_harmless else "  <- too much", flush=True)
    print("load average {:.1f} {:.1f} {:.1f}: waits grow with it".format(*os.getloadavg()))
    return 0 if all(outcome.is_harmless for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
