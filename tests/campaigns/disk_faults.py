"""Disks of an embedded cluster fail, while its replicas move between them: a kind of fault of `cluster_faults`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.support.cluster.writers import PARTITIONS
from tests.support.net.raw_client import RawClient

LOG_DIRS = 3
_IN_SYNC_S = 60.0


def break_disk(cluster: EmbeddedCluster, broker: ClusterBroker, dice: random.Random) -> str:
    """Let a disk of a broker fail in some way, repair it, and wait until all is in sync; return which way.

    The disk fails while it is used, is away at a start, or is away at a start of the only broker that is in sync. In
    half of the cases replicas move at that moment.
    """
    way = dice.choice(("used", "away", "last"))
    number = dice.randint(2, LOG_DIRS)
    others = [other for other in cluster.brokers if other is not broker]
    if way == "last":
        for other in others:
            other.stop()
        _pause(dice)
    if dice.random() < 0.5:
        _move_some(cluster, broker, dice)
        time.sleep(dice.uniform(0, 0.1))
    if way == "used":
        broker.fail_log_dir(number)
        _pause(dice)
        broker.restart()
    else:
        broker.kill()
        with _away(Path(broker.log_dirs[number - 1])):
            for each in (broker, *(others if way == "last" else ())):
                each.start()
            cluster.wait_for(lambda view: len(view.active_brokers) == len(cluster.brokers))
            _pause(dice)
            broker.stop()
        broker.start()
    cluster.wait_until_in_sync(_IN_SYNC_S)
    return way


def _pause(dice: random.Random) -> None:
    time.sleep(dice.uniform(0.05, 1.0))


@contextmanager
def _away(disk: Path) -> Iterator[None]:
    """A disk that is not there: a file is in its place, so that no directory can be made."""
    kept = disk.with_suffix(".away")
    disk.rename(kept)
    disk.write_text("no directory")
    yield
    disk.unlink()
    kept.rename(disk)


def _move_some(cluster: EmbeddedCluster, broker: ClusterBroker, dice: random.Random) -> None:
    """Wish each partition of each topic to a directory that dice choose; some wishes cannot be met."""
    with RawClient(broker.address) as client:
        for topic in cluster.wait_for(lambda _: True).topics:
            by_path: dict[str, list[int]] = {}
            for partition in range(PARTITIONS):
                by_path.setdefault(dice.choice(broker.log_dirs), []).append(partition)
            moves = [
                AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=partitions)])
                for path, partitions in by_path.items()
            ]
            client.call(AlterReplicaLogDirsRequest(dirs=moves), AlterReplicaLogDirsResponse, 2)
