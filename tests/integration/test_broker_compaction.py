"""A compacted topic, from the client's side: the last value of each key stays, old ones go, at their offsets."""

from __future__ import annotations

from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import create_topic
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from tests.support.broker.fixtures_broker import wait_until

KEYS = 50
RECORDS = 2_000  # of 2 KB: four segments


def test_topic_is_compacted_while_it_is_used() -> None:
    with EmbeddedBroker(options={"log.cleaner.backoff.ms": 50, "log.cleaner.min.cleanable.ratio": "0.1"}) as broker:
        config = ProducerConfig.from_options({"bootstrap_servers": broker.bootstrap_servers})
        with ClusterClient(config) as client, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            create_topic(client, "table", 1, 1, {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)})
            for number in range(RECORDS):
                producer.send("table", b"%d " % number + b"v" * 2_000, b"key %d" % (number % KEYS))
                if number % 100 == 0:
                    producer.flush()
            producer.flush()
            reader = PartitionReader(client, "table", 0)
            wait_until(lambda: len(list(reader.records(0, RECORDS))) < RECORDS // 2, "compaction")
            found = list(reader.records(0, RECORDS))
    assert all(record.value.startswith(b"%d " % record.offset) for record in found if record.value)
    assert all(record.key == b"key %d" % (record.offset % KEYS) for record in found)
    last = {record.key: record.offset for record in found}
    assert last == {b"key %d" % (number % KEYS): number for number in range(RECORDS - KEYS, RECORDS)}
