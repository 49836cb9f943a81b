"""Real Apache Kafka as a far end: its topics are made for each run, and its end offsets count what arrived."""

import contextlib
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

_WAIT_S = 60.0


class KafkaEnd:
    """Apache Kafka, reached at ``bootstrap``."""

    def __init__(self, bootstrap: str, description: str) -> None:
        self.bootstrap = bootstrap
        self.description = description
        self.tls_ca = ""
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        """Create the topics, keep at most a few megabytes of each partition, delete them at the end."""
        settings = {"segment.bytes": "16777216", "retention.bytes": "16777216", "file.delete.delay.ms": "0"}
        replicas = min(3, len(self._admin.list_topics(timeout=10).brokers))
        names = list(partition_counts)
        topics = [NewTopic(name, partition_counts[name], replicas, config=settings) for name in names]
        for future in self._admin.create_topics(topics, operation_timeout=30).values():
            future.result(30)
        self._wait_for_leaders(partition_counts)
        try:
            yield
        finally:
            for future in self._admin.delete_topics(names, operation_timeout=30).values():
                future.result(30)

    def arrived(self, topics: Mapping[str, int]) -> int:
        """By the end offsets. Raises RuntimeError if the brokers do not tell them."""
        wanted = {
            TopicPartition(name, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for name, count in topics.items()
            for partition in range(count)
        }
        try:
            return sum(future.result(30).offset for future in self._admin.list_offsets(wanted).values())
        except TimeoutError:
            raise RuntimeError(f"{self.description} did not tell its end offsets within 30 s") from None

    def _wait_for_leaders(self, partition_counts: Mapping[str, int]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self.arrived(partition_counts)
                return
            except KafkaException:  # not created yet, or no leader yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
