"""What is compared: each case is one workload at one far end, and the clients that take turns at it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from benchmarks.peers.run import Peer
from benchmarks.workloads import Workload, make_workload

TOPIC = "bench"

# What every ratio is to.
YARDSTICK = Peer("confluent_client", "produce", "confluent-kafka produce()")
SEND = Peer("kafkaprod_client", "send", "kafkaprod send()")
SEND_MANY = Peer("kafkaprod_client", "send_many", "kafkaprod send_many()")
SEND_COLUMNS = Peer("kafkaprod_client", "send_columns", "kafkaprod send_columns()")
ASYNC_SEND = Peer("kafkaprod_client", "async_send", "kafkaprod await send()")
PRODUCE_BATCH = Peer("confluent_client", "produce_batch", "confluent-kafka produce_batch()")
AIO_PRODUCER = Peer("confluent_client", "aio", "confluent-kafka AIOProducer")
KAFKA_PYTHON = Peer("kafka_python_client", "send", "kafka-python send()")
AIOKAFKA = Peer("aiokafka_client", "send", "aiokafka send()")
JAVA = Peer("java", "send", "Java producer")
PERF_TEST = Peer("java_tools_client", "perf_test", "kafka-producer-perf-test")
FRANZ_GO = Peer("go", "produce", "franz-go (Go)")
RSKAFKA_SEND = Peer("rust", "send", "rskafka BatchProducer (Rust)")
RSKAFKA_PRODUCE = Peer("rust", "produce", "rskafka produce(list) (Rust)")
# What every client's CPU time is a multiple of, where it can run.
BARE_SEND = Peer("bare_send_client", "send", "bare send of the same bytes")

OURS = (SEND, SEND_MANY, SEND_COLUMNS)
STRONGEST = (YARDSTICK, PRODUCE_BATCH, *OURS, JAVA, FRANZ_GO)
OVER_TLS = (YARDSTICK, *OURS, JAVA, FRANZ_GO)
EVERYONE = (
    *(YARDSTICK, PRODUCE_BATCH, AIO_PRODUCER, *OURS, ASYNC_SEND, KAFKA_PYTHON, AIOKAFKA),
    *(JAVA, PERF_TEST, FRANZ_GO, RSKAFKA_SEND, RSKAFKA_PRODUCE),
)
ONE_RECORD_A_CALL = (YARDSTICK, SEND, KAFKA_PYTHON, JAVA, FRANZ_GO)
CODECS = ("gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison.

    Attributes:
        name: for the command line.
        title: for the table; what differs from the plain case: 100-byte random values, 8-byte keys, 6 partitions of one
            topic, acks=all, idempotence on, linger 5 ms, no compression, results not looked at.
        peers: who takes part, in the order of each turn.
        far_end: of `benchmarks.far_ends.FAR_ENDS`.
        value_bytes, records, keyed, headers, content: the workload; records are those of one round.
        partitions: of each topic.
        options: other fields of `benchmarks.peers.task.Task`, ``topics`` among them.
        is_quick: part of ``--quick``.
    """

    name: str
    title: str
    peers: tuple[Peer, ...] = (YARDSTICK, *OURS)
    far_end: str = "sink"
    value_bytes: int = 100
    records: int = 20_000
    keyed: bool = True
    headers: bool = False
    content: str = "random"
    partitions: int = 6
    options: Mapping[str, Any] = field(default_factory=dict)
    is_quick: bool = False

    def workload(self) -> Workload:
        """The records of one round."""
        return make_workload(
            self.records, self.value_bytes, keyed=self.keyed, headers=self.headers, content=self.content
        )

    def topics(self) -> dict[str, int]:
        """Topic names to partition counts."""
        count = self.options.get("topics", 1)
        names = [TOPIC] if count == 1 else [f"{TOPIC}-{index}" for index in range(count)]
        return dict.fromkeys(names, self.partitions)

    def with_bare_send(self) -> Self:
        """Let the bare send take part, if what it sends would be the same bytes and one node leads all partitions."""
        if self.options.get("compression") or self.far_end in ("kafka3", "tls"):
            return self
        return dataclasses.replace(self, peers=(*self.peers, BARE_SEND))


_CASES = (
    Case("table", "plain", EVERYONE, is_quick=True),
    Case("kafka1", "Apache Kafka, one node", STRONGEST, "kafka1", is_quick=True),
    Case("read", "every result read", (*ONE_RECORD_A_CALL, SEND_MANY, SEND_COLUMNS, ASYNC_SEND, AIO_PRODUCER, AIOKAFKA),
         options={"results": "read"}),
    Case("callback", "a callback for every record", ONE_RECORD_A_CALL, options={"results": "callback"}),
    Case("headers", "two headers", (YARDSTICK, *OURS, JAVA, FRANZ_GO), headers=True),
    Case("keyless", "no keys", STRONGEST, keyed=False),
    Case("10B", "10-byte values", STRONGEST, value_bytes=10),
    Case("1kB", "1,000-byte values", STRONGEST, value_bytes=1_000, records=10_000),
    Case("10kB", "10,000-byte values", STRONGEST, value_bytes=10_000, records=2_000),
    Case("1-partition", "1 partition", STRONGEST, partitions=1),
    Case("100-partitions", "100 partitions", STRONGEST, partitions=100),
    Case("10000-partitions", "10,000 partitions", STRONGEST, partitions=10_000),
    Case("1000-topics", "1,000 topics of 1 partition", STRONGEST, partitions=1, records=200_000,
         options={"topics": 1_000, "call_records": 200}),
    Case("1-topic-blocks", "1 topic of 1 partition, 200 rows a call", (SEND_MANY, SEND_COLUMNS), partitions=1,
         options={"call_records": 200}),
    Case("4-threads", "4 threads", STRONGEST, options={"threads": 4}),
    Case("acks-0", "acks=0", STRONGEST, options={"acks": "0", "idempotence": False}),
    Case("acks-1", "acks=1", STRONGEST, options={"acks": "1", "idempotence": False}),
    Case("not-idempotent", "idempotence off", STRONGEST, options={"idempotence": False}),
    Case("json", "JSON values", STRONGEST, content="json"),
    *(Case(codec, f"JSON values, {codec}", STRONGEST, content="json", options={"compression": codec})
      for codec in CODECS),
    Case("distant", "100 ms round trip", STRONGEST, "distant", options={"seconds": 3.0}),
    Case("distant-1MB", "100 ms round trip, batches of 1 MB", STRONGEST, "distant",
         options={"seconds": 3.0, "batch_bytes": 1_000_000}),
    Case("tls", "TLS", OVER_TLS, "tls"),
    Case("tls-1kB", "TLS, 1,000-byte values", OVER_TLS, "tls", value_bytes=1_000, records=10_000),
    Case("tls-10kB", "TLS, 10,000-byte values", OVER_TLS, "tls", value_bytes=10_000, records=2_000),
    *(Case(f"kafka1-{codec}", f"Apache Kafka, one node, JSON values, {codec}", STRONGEST, "kafka1", content="json",
           options={"compression": codec}) for codec in ("lz4", "zstd")),
    Case("kafka3", "Apache Kafka, three nodes", STRONGEST, "kafka3"),
)  # fmt: skip
CASES = tuple(case.with_bare_send() for case in _CASES)
