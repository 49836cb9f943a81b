"""The JSON of stats_cb: the fields of librdkafka's STATISTICS.md that this engine counts, under its names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from kafkaprod import Producer
from kafkaprod.clock import monotonic_ns, monotonic_s, wall_s
from kafkaprod.compat.confluent_kafka.options import NOWHERE, Settings
from kafkaprod.compat.confluent_kafka.reports import Events
from kafkaprod.errors import KafkaError
from kafkaprod.structs import Node, RecordMetadata
from kafkaprod.text import address_text
from kafkaprod.threads import apart, make_thread

DESCRIPTION_S: Final = 10.0  # longest wait, on a thread of its own, for the brokers' addresses
_NODE: Final = "producer-node-metrics.node-"
_NODE_LATENCY: Final = "producer-node-latency-metrics.node-"
_SHOWN: Final = ("avg", "max", "p50", "p90", "p99")
_TOPIC: Final = "producer-topic-metrics."


class PartitionCounts:
    """An interceptor that counts delivered records by topic and partition. The engine's thread counts, any reads."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = {}  # records, bytes of keys and values

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Count a record."""
        if error is None:
            counts = self._counts.get((metadata.topic, metadata.partition))
            if counts is None:
                counts = self._counts.setdefault((metadata.topic, metadata.partition), [0, 0])
            counts[0] += 1
            counts[1] += max(metadata.serialized_key_size, 0) + max(metadata.serialized_value_size, 0)

    def of_topic(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return records and bytes of each partition."""
        counts = self._counts.copy()
        return {partition: (both[0], both[1]) for (name, partition), both in sorted(counts.items()) if name == topic}


class Statistics:
    """Makes the texts.

    Args:
        producer: Whose metrics are read.
        settings: The settings of the producer.
        events: Knows how many records are under way.
        counts: Has seen every outcome.
    """

    def __init__(self, producer: Producer, settings: Settings, events: Events, counts: PartitionCounts) -> None:
        self._producer = producer
        self._settings = settings
        self._events = events
        self._counts = counts
        self._started = monotonic_s()
        self._nodes: Mapping[int, Node] = {}
        self._described_for: set[int] = set()  # ids of brokers at the last description

    def text(self) -> str:
        """Return what there is now, as JSON."""
        metrics = self._producer.metrics()
        whole = metrics["producer-metrics"]
        client_id = self._producer.config.client_id
        brokers = self._brokers(metrics)
        topics = {
            group.removeprefix(_TOPIC): self._topic(group.removeprefix(_TOPIC), values, whole)
            for group, values in metrics.items()
            if group.startswith(_TOPIC)
        }
        statistics = {
            "name": f"{client_id}#producer-1",
            "client_id": client_id,
            "type": "producer",
            "ts": monotonic_ns() // 1000,
            "time": int(wall_s()),
            "age": int((monotonic_s() - self._started) * 1e6),
            "replyq": len(self._events) - self._events.under_way,
            "msg_cnt": self._events.under_way,
            "msg_size": max(_whole(whole, "buffer-total-bytes") - _whole(whole, "buffer-available-bytes"), 0),
            "msg_max": self._settings.max_messages,
            "msg_size_max": _whole(whole, "buffer-total-bytes"),
            "simple_cnt": 0,
            "metadata_cache_cnt": len(topics),
            "tx": _whole(whole, "request-total"),
            "tx_bytes": _whole(whole, "outgoing-byte-total"),
            "rx": _whole(whole, "response-total"),
            "rx_bytes": _whole(whole, "incoming-byte-total"),
            "txmsgs": _whole(whole, "record-send-total"),
            "txmsg_bytes": sum(topic["txbytes"] for topic in topics.values()),
            "rxmsgs": 0,
            "rxmsg_bytes": 0,
            "brokers": brokers,
            "topics": topics,
        }
        return json.dumps(statistics)

    def _brokers(self, metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the brokers by name, `host:port/id`; bootstrap servers have the id -1 and `bootstrap`, as there."""
        if self._settings.engine.get("bootstrap.servers") == NOWHERE:
            return {}
        found = {int(group.removeprefix(_NODE)): values for group, values in metrics.items() if group.startswith(_NODE)}
        self._learn_addresses({node_id for node_id in found if node_id >= 0})
        servers = self._producer.config.bootstrap_servers
        brokers = {}
        for node_id, values in sorted(found.items()):
            node = self._nodes.get(node_id)
            if node is not None:
                place = address_text(node.host, node.port)
            elif -len(servers) <= node_id < 0:
                place = address_text(*servers[-node_id - 1])
            else:
                place = "unknown:0"
            name = f"{place}/{node_id if node_id >= 0 else 'bootstrap'}"
            latencies = metrics.get(f"{_NODE_LATENCY}{node_id}", {})
            brokers[name] = _broker(name, place, node_id, values, latencies)
        return brokers

    def _learn_addresses(self, node_ids: set[int]) -> None:
        """Request the brokers' addresses where there are new brokers; they are there from one of the next texts on."""
        if node_ids <= self._described_for:
            return
        self._described_for |= node_ids
        try:
            apart(make_thread(self._describe, "kafkaprod-statistics").start)
        except RuntimeError:  # no more threads: the next text tries again
            self._described_for = set()

    def _describe(self) -> None:
        try:
            self._nodes = self._producer.list_topics([], DESCRIPTION_S).brokers
        except KafkaError:
            self._described_for = set()

    def _topic(self, topic: str, values: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
        partitions = {
            str(partition): {"partition": partition, "txmsgs": records, "txbytes": size, "rxmsgs": 0, "rxbytes": 0}
            for partition, (records, size) in self._counts.of_topic(topic).items()
        }
        return {
            "topic": topic,
            "age": int((monotonic_s() - self._started) * 1e3),
            "metadata_age": int(_number(whole, "metadata-age") * 1e3),
            "batchsize": {"avg": int(_number(whole, "batch-size-avg")), "max": int(_number(whole, "batch-size-max"))},
            "txmsgs": _whole(values, "record-send-total"),
            "txbytes": _whole(values, "byte-total"),
            "txretries": _whole(values, "record-retry-total"),
            "txerrs": _whole(values, "record-error-total"),
            "partitions": partitions,
        }


def _broker(
    name: str, place: str, node_id: int, values: Mapping[str, Any], latencies: Mapping[str, Any]
) -> dict[str, Any]:
    requests, responses = _whole(values, "request-total"), _whole(values, "response-total")
    return {
        "name": name,
        "nodeid": node_id if node_id >= 0 else -1,
        "nodename": place,
        "source": "learned" if node_id >= 0 else "configured",
        "waitresp_cnt": max(requests - responses, 0),
        "tx": requests,
        "txbytes": _whole(values, "outgoing-byte-total"),
        "rx": responses,
        "rxbytes": _whole(values, "incoming-byte-total"),
        "int_latency": _latency(latencies, "append"),
        "outbuf_latency": _latency(latencies, "send"),
        "rtt": _latency(latencies, "ack"),
    }


def _latency(latencies: Mapping[str, Any], stage: str) -> dict[str, int]:
    """Return how long batches took in a stage at a broker, in us since the start."""
    return {what: _whole(latencies, f"{stage}-time-us-{what}") for what in _SHOWN}


def _number(values: Mapping[str, Any], name: str) -> float:
    number = float(values.get(name, 0))
    return number if math.isfinite(number) else 0.0


def _whole(values: Mapping[str, Any], name: str) -> int:
    return int(_number(values, name))
