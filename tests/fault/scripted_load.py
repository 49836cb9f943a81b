"""A producer on a scripted cluster, and the check of what it wrote there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafkaprod import Producer
from tests.fault.producer_load import memory_not_returned, wait_for_callbacks
from tests.fault.record_checker import CheckReport, SendLedger, check_records
from tests.fault.scripted_broker import ScriptedCluster

FAST: dict[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


@contextmanager
def producer_of(cluster: ScriptedCluster, **options: Any) -> Iterator[Producer]:
    """A producer that gives all its memory back."""
    producer = Producer(bootstrap_servers=cluster.bootstrap, **{**FAST, **options})
    try:
        yield producer
        assert memory_not_returned(producer) == 0
    finally:
        producer.close(5)


def checked(cluster: ScriptedCluster, ledger: SendLedger) -> CheckReport:
    """The report, which must be without defects; also, no batch was numbered anew after it was written."""
    wait_for_callbacks(ledger)
    report = check_records([ledger], cluster.logs())
    assert report.is_ok, str(report)
    assert not cluster.renumbered_in_doubt()
    return report
