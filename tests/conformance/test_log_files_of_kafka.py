"""Files exchanged with Apache Kafka: its dump tool reads what we wrote, and we open what a broker wrote."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.log_config import LogConfig
from tests.campaigns.images_log import MemoryImage
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.reading import end_offsets
from tests.kafka.runtime import run_java
from tests.support.broker.fixtures_log import make_batch, open_log, read_all

pytestmark = pytest.mark.external

SEGMENT_BYTES = 1024 * 1024  # the least Kafka 4 allows
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)


def write_log(directory: Path) -> None:
    """Several segments: every codec, an idempotent producer, committed and aborted transactions, two leader epochs."""
    log = open_log(directory, LogConfig(segment_bytes=4000, index_interval_bytes=300))
    for index in range(120):
        if index % 10 == 9:
            log.append_marker(7, 0, EndTransactionMarker(index % 20 == 9, 3), index // 60)
        elif index % 2:
            log.append(make_batch([b"plain" * (index % 9), None], codec=index // 2 % 5), index // 60)
        else:
            sequence = index // 2
            batch = make_batch([b"tx" * 20], producer_id=7, epoch=0, sequence=sequence, is_transactional=True)
            log.append(batch, index // 60)
    assert log.close()


def dump(kafka_tools: str, directory: Path, *options: str) -> str:
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(str(path) for path in directory.iterdir() if path.suffix in suffixes)
    arguments = [*options, "--files", ",".join(files)]
    return run_java(kafka_tools, "org.apache.kafka.tools.DumpLogSegments", arguments)


def test_kafkas_dump_tool_finds_no_fault_in_our_files(kafka_tools: str, tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    write_log(directory)
    checked = dump(kafka_tools, directory, "--index-sanity-check")
    index_count = len(list(directory.glob("*.index")))
    assert index_count > 3
    assert checked.count("passed sanity check") == 2 * index_count
    deep = dump(kafka_tools, directory, "--deep-iteration", "--print-data-log")
    assert "ismatch" not in deep
    assert "out of order" not in deep
    assert "Invalid" not in deep
    records = [line for line in deep.splitlines() if line.startswith("| offset")]
    expected = sum(batch.last_offset - batch.base_offset + 1 for batch in read_all(open_log(directory, CONFIG)))
    assert len(records) == expected
    assert deep.count("endTxnMarker: ABORT") == deep.count("endTxnMarker: COMMIT") == 6
    assert "lastStableOffset" in deep  # the .txnindex
    assert "currentTxnFirstOffset" in deep  # the .snapshot


def test_log_written_by_kafka_opens_and_its_indexes_are_the_ones_we_derive(
    kafka: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    kafka.create_topic(topic_name, config={"segment.bytes": SEGMENT_BYTES})
    rng, sent = random.Random(1), 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap(),
                "log_level": 0,
                "enable.idempotence": codec != "gzip",
                "compression.type": codec,
                "linger.ms": 5,
                "batch.size": 20_000,
                **({"transactional.id": f"{topic_name}-{codec}"} if codec in ("lz4", "zstd") else {}),
            }
        )
        if codec in ("lz4", "zstd"):
            producer.init_transactions(30)
            producer.begin_transaction()
        for index in range(8_000):
            producer.produce(topic_name, rng.randbytes(90), key=b"%d" % index)
            if index % 2_000 == 1_999:
                assert producer.flush(30) == 0
        sent += 8_000
        if codec == "lz4":
            producer.commit_transaction(30)
        elif codec == "zstd":
            producer.abort_transaction(30)
    wait_until(lambda: end_offsets(kafka.bootstrap(), topic_name) == {0: sent + 2}, 30, "the last marker")
    (source,) = kafka.directory.rglob(f"{topic_name}-0")
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    theirs = MemoryImage({path.name: path.read_bytes() for path in copy.iterdir()})
    log = open_log(copy, CONFIG, is_clean=False)  # the broker runs on: this is the image of a crash
    assert log.damage is None
    batches = read_all(log)
    assert log.log_end_offset == batches[-1].last_offset + 1 == sent + 2  # and two markers
    assert b"".join(batch.data for batch in batches) == b"".join(
        theirs.files[name] for name in sorted(theirs.files) if name.endswith(".log")
    )
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)
    assert (aborted.first_offset, aborted.last_offset) == (sent - 8_000 + 1, sent + 1)
    assert log.last_stable_offset == log.log_end_offset
    log.abandon()

    ours = MemoryImage({name: data for name, data in theirs.files.items() if name.endswith(".log")})
    ours.apply(ours.recover(CONFIG))
    bases = sorted(name[:20] for name in ours.files if name.endswith(".log"))
    assert len(bases) > 1
    for base in bases[:-1]:  # closed segments: the broker has trimmed their indexes
        for suffix in (".index", ".timeindex"):
            assert ours.files[base + suffix] == theirs.files[base + suffix], base + suffix
    for base in bases[1:]:  # snapshots of rolls: the same producers, to the bit
        entry_bytes = 10 + 46 * int.from_bytes(theirs.files[base + ".snapshot"][6:10], "big")
        assert entry_bytes == len(theirs.files[base + ".snapshot"])
        assert sorted_entries(bytes(ours.files[base + ".snapshot"])) == sorted_entries(
            bytes(theirs.files[base + ".snapshot"])
        )


def sorted_entries(snapshot: bytes) -> list[bytes]:
    """Kafka's part of a snapshot; it writes producers in the order of a hash map."""
    count = int.from_bytes(snapshot[6:10], "big")
    return sorted(snapshot[10 + 46 * index : 56 + 46 * index] for index in range(count))
