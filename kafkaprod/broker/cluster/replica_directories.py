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
        partitions = self._topics.image.partitions
        for key in keys:
            if key in partitions and self._broker_id in partitions[key].replicas:
                self._compare(key, partitions[key].directory_of(self._broker_id))
            else:
                self.assignments.discard(key)

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
        """Have the metadata say where a replica is, if it says something else."""
        names_none = known in (MIGRATING, UNASSIGNED)
        if key in self._manager.offline:
            if names_none or known in self._log_dirs.online_ids:
                self.assignments.want(key, LOST)
        elif key in self._manager.replicas and (self._has_several or not names_none):
            actual = self._topics.directory_of(key)
            if known not in (actual, self._topics.move_target_of(key)):
                self.assignments.want(key, actual)

    # -- partitions that move, from any thread -------------------------------------------------------------------------

    def _may_complete(self, topic_partition: TopicPartition, directory: uuid.UUID) -> bool:
        """Return whether the metadata names the directory; have it do so."""
        partition = self._topics.partition(*topic_partition)
        if not partition:
            return False
        image = partition.image
        is_named = image.directory_of(self._broker_id) == directory
        if not is_named:
            self._post(lambda: self.assignments.want(image.key, directory))
        return is_named

    def _on_given_up(self, topic_partition: TopicPartition) -> None:
        def look() -> None:
            partition = self._topics.partition(*topic_partition)
            if partition:
                self.assignments.discard(partition.image.key)
                self.note((partition.image.key,))

        self._post(look)
