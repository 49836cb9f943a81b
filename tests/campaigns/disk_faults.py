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
from kafkaprod.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.support.net.raw_client import RawClient

LOG_DIRS = 3
Places = dict[tuple[str, int], str]
"""The log directory of each topic and partition."""
_IN_SYNC_S = 60.0


def break_disk(cluster: EmbeddedCluster, broker: ClusterBroker, dice: random.Random) -> str:
    """Let a disk of a broker fail in some way, repair it, and wait until all is in sync; return which way.

    The disk fails while it is used, is away at a start, or is away at a start of the only broker that is in sync. Often
    replicas move at that moment; or the moves are given up, and the metadata does not say so yet.
    """
    way = dice.choice(("used", "away", "last"))
    number = dice.randint(2, LOG_DIRS)
    others = [other for other in cluster.brokers if other is not broker]
    if way == "last":
        for other in others:
            other.stop()
        _pause(dice)
    moves = dice.choice(("none", "begin", "given up"))
    if moves == "given up" and way != "used":
        _give_moves_up(cluster, broker, dice)
    elif moves != "none":
        _wish(broker, _anywhere(broker, dice))
        time.sleep(dice.uniform(0, 0.1))
    if way == "used":
        broker.fail_log_dir(number)
        _pause(dice)
        broker.restart()
    else:
        if broker.is_running:
            broker.kill()
        with _away(Path(broker.log_dirs[number - 1])):
            for each in (broker, *(others if way == "last" else ())):
                each.start()
            cluster.wait_for(lambda view: len(view.active_brokers) == len(cluster.brokers))
            _pause(dice)
            broker.stop()
        broker.start()
    cluster.wait_until_in_sync(_IN_SYNC_S)
    return f"{way}, moves: {moves}"


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


def _give_moves_up(cluster: EmbeddedCluster, broker: ClusterBroker, dice: random.Random) -> None:
    before = _places(broker)
    with cluster.cut("controller", broker.id, one_way=True):
        _wish(broker, _anywhere(broker, dice))
        time.sleep(dice.uniform(0.1, 0.5))
        _wish(broker, before)
        broker.kill()


def _places(broker: ClusterBroker) -> Places:
    """In which directory each replica is, or from which it moves."""
    places: Places = {}
    with RawClient(broker.address) as client:
        answer = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    for found in answer.results:
        for topic in found.topics:
            for each in topic.partitions:
                if not each.is_future_key:
                    places[topic.name, each.partition_index] = found.log_dir
    return places


def _anywhere(broker: ClusterBroker, dice: random.Random) -> Places:
    return {each: dice.choice(broker.log_dirs) for each in sorted(_places(broker))}


def _wish(broker: ClusterBroker, places: Places) -> None:
    """Ask a broker to move replicas; what it refuses stays."""
    moves: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), path in places.items():
        moves.setdefault(path, {}).setdefault(topic, []).append(partition)
    named = [
        AlterReplicaLogDir(
            path=path,
            topics=[AlterReplicaLogDirTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()],
        )
        for path, topics in moves.items()
    ]
    with RawClient(broker.address) as client:
        client.call(AlterReplicaLogDirsRequest(dirs=named), AlterReplicaLogDirsResponse, 2)
