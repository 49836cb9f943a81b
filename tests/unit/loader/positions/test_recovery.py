"""A complete load is compared with the log that is there now, not believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod.loader import transactional
from kafkaprod.loader.attempt import LoadOptions
from kafkaprod.loader.load import Load
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.positions import recovery
from kafkaprod.loader.positions.committed_position import CommittedPosition
from kafkaprod.loader.positions.manifest import Manifest, PartitionState, Position
from kafkaprod.loader.transactional import check_log


class Cluster:
    """A cluster that has one topic."""

    def __init__(self, cluster_id: str = "c", topic_id: str = "t") -> None:
        self._answer = SimpleNamespace(cluster_id=cluster_id, topics=[SimpleNamespace(topic_id=topic_id)])

    def metadata(self, topics: list[str]) -> Any:
        """What it says of itself."""
        return self._answer


CHANGES = [({"cluster_id": "other"}, 7, "cluster of id c"), ({"topic_id": "other"}, 7, "topic 'orders' of id t")]
SHORTER: tuple[dict[str, str], int, str] = ({}, 6, r"orders\[0\] ends at offset 6")


def run_complete(cluster: Cluster) -> None:
    """Resume a complete load."""
    manifest = Manifest(
        topic="orders",
        topic_id="t",
        cluster_id="c",
        producer_id=1,
        producer_epoch=0,
        partition_count=1,
        run_rows=10,
        options={},
        inputs=[],
        position=Position(),
        partitions={0: PartitionState(7, 7, 7)},
    )
    manifest.finish()
    unused: Any = None
    client: Any = cluster
    Load([], unused, LoadOptions("orders", {}, 1000), client, unused, unused, None, manifest).run()


@pytest.mark.parametrize(("change", "end", "why"), [*CHANGES, SHORTER])
def test_a_complete_load_is_not_believed(
    change: dict[str, str], end: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "log_offsets", lambda *_: {0: end})
    with pytest.raises(LoadError, match=why):
        run_complete(Cluster(**change))


def test_a_complete_load_whose_rows_are_there_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "log_offsets", lambda *_: {0: 7})
    run_complete(Cluster())


@pytest.mark.parametrize(("change", "end", "why"), [*CHANGES, SHORTER])
def test_a_committed_position_is_not_believed(
    change: dict[str, str], end: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = CommittedPosition(1, 10, "t", "ab" * 16, "cd" * 16, 1000, False, cluster_id="c").ending_at({0: 7})
    monkeypatch.setattr(transactional, "log_offsets", lambda *_: {0: end})
    client: Any = Cluster(**change)
    with pytest.raises(LoadError, match=why):
        check_log(client, "orders", committed)
    monkeypatch.setattr(transactional, "log_offsets", lambda *_: {0: 7})
    client = Cluster()
    check_log(client, "orders", committed)
