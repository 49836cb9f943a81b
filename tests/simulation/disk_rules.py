"""Rules for log directories that fail, each with a way to switch it off: `disk_day` must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kafkaprod.broker.cluster.replica_directories import ReplicaDirectories
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from tests.simulation.disk_day import DiskNode, DiskTopics, SimulatedDisks
from tests.simulation.rules import replaced


def _keeps_leading(self: ReplicaManager, keys: Any) -> None:
    self.offline.update(keys)


@contextmanager
def _without_old_logs(rule: AbstractContextManager[None]) -> Iterator[None]:
    """Switch a rule off together with the one that would keep all records in its place."""
    with rule, replaced(DiskTopics, "had_log", lambda *_: False):
        yield


DISK_RULES: dict[str, Callable[[], Any]] = {
    "a replica on a missing disk is not made again": lambda: _without_old_logs(
        replaced(DiskNode, "may_make", lambda *_: True)
    ),
    "a copy alone is no replica": lambda: replaced(
        DiskNode,
        "may_make",
        lambda self, _key, known: not self.disks.has_offline or known in self.disks.online_ids,
    ),
    "a replica in the ISR had a log": lambda: replaced(DiskTopics, "had_log", lambda *_: False),
    "a move waits for the metadata": lambda: _without_old_logs(
        replaced(ReplicaDirectories, "_may_complete", lambda *_: True)
    ),
    "a replica without its disk does not lead": lambda: replaced(ClusterImage, "is_online", lambda *_: True),
    "a broker notices that a disk has failed": lambda: replaced(SimulatedDisks, "failed_ids", ()),
    "a failed replica neither leads nor follows": lambda: replaced(ReplicaManager, "fail", _keeps_leading),
}
