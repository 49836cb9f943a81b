"""In which log directories the replicas of a cluster's broker are: what the metadata must say, and which have failed.

    a replica is opened, or stays where it is after a move   the metadata is made to name its directory
    a move could be completed                                the metadata names the new directory first
    a replica's directory is offline since the start         the metadata is made to say LOST, unless it knows
    a directory fails                                        the next heartbeat says so

So a crash at any time leaves the metadata naming the directory that has all of the replica's records. The event loop
owns it, but for what names other threads. Source: KIP-858.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.metadata.records import LOST, MIGRATING, UNASSIGNED
from kafkaprod.broker.replication.directory_assignments import DirectoryAssignments
from kafkaprod.broker.replication.lifecycle import BrokerLifecycle
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.structs import TopicPartition


class ReplicaDirectories:
    """See the module docstring.

    Attributes:
        assignments: What the metadata must name of single replicas.
    """

    def __init__(
        self,
        broker_id: int,
        log_dirs: LogDirs,
        topics: ReplicatedTopics,
        manager: ReplicaManager,
        lifecycle: BrokerLifecycle,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """Look at no replica yet.

        Args:
            broker_id: This broker's id.
            log_dirs: Its directories.
            topics: Its replicas' logs.
            manager: Its replicas.
            lifecycle: Says in heartbeats which directories have failed.
            post: Runs a call on the event loop; thread-safe.
        """
        self.assignments = DirectoryAssignments(broker_id)
        self._broker_id = broker_id
        self._log_dirs = log_dirs
        self._topics = topics
        self._manager = manager
        self._lifecycle = lifecycle
        self._post = post
        self._has_several = len(log_dirs.paths) > 1
        self._failed_ids: tuple[uuid.UUID, ...] = ()
        log_dirs.moves.may_complete = self._may_complete
        log_dirs.moves.on_given_up = self._on_given_up

    def note(self, keys: Iterable[PartitionKey]) -> None:
        """Look at replicas that the metadata has changed, or that were opened."""
        for key in keys:
            partition = self._topics.image.partitions.get(key)
            if partition is None or self._broker_id not in partition.replicas:
                self.assignments.discard(key)
            else:
                self._compare(key, partition.directory_of(self._broker_id))

    def take_failures(self, now_ms: int) -> list[PartitionKey]:
        """Take the replicas out whose directory has failed since the last call, and return which."""
        failed_ids = self._log_dirs.failed_ids if self._has_several else ()
        if failed_ids == self._failed_ids:
            return []
        self._failed_ids = failed_ids
        self._lifecycle.lose_log_dirs(failed_ids, now_ms)
        keys = [key for key in self._topics.offline_keys() if key in self._manager.replicas]
        self._manager.fail(keys)
        return keys

    def _compare(self, key: PartitionKey, known: uuid.UUID) -> None:
        if key in self._manager.offline:
            is_known = known == LOST or known not in (*self._log_dirs.online_ids, MIGRATING, UNASSIGNED)
            if not is_known:
                self.assignments.want(key, LOST)
            return
        if not self._has_several and known in (MIGRATING, UNASSIGNED):
            return
        actual = self._topics.directory_of(key)
        if actual is None or known == actual:
            return
        place = self._topics.topic_partition_of(key)
        move = None if place is None else self._log_dirs.moves.get(place)
        if move is None or move.target.directory_id != known:
            self.assignments.want(key, actual)

    # -- partitions that move, from any thread -------------------------------------------------------------------------

    def _may_complete(self, topic_partition: TopicPartition, directory: uuid.UUID) -> bool:
        """Return whether the metadata names the directory; have it do so."""
        image = self._topics.image
        key = self._topics.key_of(topic_partition)
        partition = None if key is None else image.partitions.get(key)
        if partition is None or key is None:
            return False
        if partition.directory_of(self._broker_id) == directory:
            return True
        self._post(lambda: self.assignments.want(key, directory))
        return False

    def _on_given_up(self, topic_partition: TopicPartition) -> None:
        def look() -> None:
            key = self._topics.key_of(topic_partition)
            if key is not None:
                self.assignments.discard(key)
                self.note((key,))

        self._post(look)
