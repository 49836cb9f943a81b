"""Transactional producers on clusters that fail: repeat what may be repeated, and look for transactions that hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import READ_COMMITTED, READ_UNCOMMITTED, log_offsets
from kafkaprod.admin.transactions import list_transactions
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import KafkaError, TransactionTimeoutError
from tests.kafka.cluster import wait_until

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
ENDS_S: Final = 60.0


def ready_producer(
    servers: str, transactional_id: str, *, call_s: float, patience_s: float, **options: Any
) -> Producer:
    """Return a producer that is ready for transactions; it is made again until the cluster accepts it.

    Args:
        servers: Bootstrap servers.
        transactional_id: Of the producer.
        call_s: Timeout of one `init_transactions()`.
        patience_s: After that its error is raised.
        options: Other options of the producer.
    """
    deadline = time.monotonic() + patience_s
    while True:
        producer = Producer(bootstrap_servers=servers, transactional_id=transactional_id, linger_ms=0, **options)
        try:
            producer.init_transactions(call_s)
            return producer
        except KafkaError:
            producer.close(0)
            if time.monotonic() > deadline:
                raise


def finish(call: Callable[[float], None], *, call_s: float, patience_s: float) -> None:
    """Make the same call, each time for `call_s`, until it has its outcome."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return call(call_s)
        except TransactionTimeoutError:
            if time.monotonic() > deadline:
                raise


def check_ends(servers: str, topic: str) -> None:
    """Check that no transaction hangs, and that the last stable offset comes to the end of each partition.

    Raises:
        TimeoutError: That is not so after a minute.
    """
    with ClusterClient(ProducerConfig.from_options({"bootstrap.servers": servers})) as client:
        wait_until(lambda: list_transactions(client, states=OPEN_STATES) == [], ENDS_S, "end of the last transaction")
        ends = log_offsets(client, topic, isolation=READ_UNCOMMITTED)
        wait_until(lambda: log_offsets(client, topic, isolation=READ_COMMITTED) == ends, ENDS_S, "last stable offset")
