from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from kafkaprod.broker.cluster.alone import Alone
from kafkaprod.structs import TopicPartition

PLACE = TopicPartition("orders", 0)


def test_transactions_that_recovery_completes_are_not_found_open_afterwards() -> None:
    entry = SimpleNamespace(producer_id=7, epoch=0, has_transaction=True)
    found = []

    def recover(find_open: Callable[[], list[Any]], now_ms: int) -> None:
        assert now_ms == 5
        found.append([(each.partition, each.producer.producer_id) for each in find_open()])
        entry.has_transaction = False  # its marker is written
        found.append(find_open())

    broker = SimpleNamespace(
        log_dirs=SimpleNamespace(partitions={PLACE: SimpleNamespace(producers=lambda: [entry])}),
        transactions=SimpleNamespace(recover=recover),
        clock=SimpleNamespace(wall_ms=lambda: 5),
        config=SimpleNamespace(topics={}),
    )
    Alone(cast(Any, broker)).recover()
    assert found == [[(PLACE, 7)], []]
