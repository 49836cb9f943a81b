"""The partitions of a broker: follows the image, and says which fetches, proposals and answers are due.

`note_metadata` takes the partitions that a slice of metadata changed, and `work` follows some of them a turn, however
many there are: replicas are made, lead, follow or go. A follower's
fetcher is removed before its log's end is read, and added again behind it, so that no answer in flight meets a changed
log. Not thread-safe; time is an argument. Source: Kafka, ReplicaManager and ReplicaFetcherManager.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage, PartitionKey
from kafkaprod.broker.metadata.records import NO_LEADER
from kafkaprod.broker.replication.fetch_sessions import FetchSessions
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher, FetchRequest, OffsetAnswer, OffsetLookup
from kafkaprod.broker.replication.isr_requests import IsrRequests
from kafkaprod.broker.replication.metadata_queue import MetadataQueue, Presence
from kafkaprod.broker.replication.partition import (
    Eligibility,
    FetchOutcome,
    FollowerFetch,
    PartitionReplica,
    ReplicaSettings,
)
from kafkaprod.broker.replication.replica_log import ReplicaLog
from kafkaprod.broker.storage.errors import LogDirectoryFailedError
from kafkaprod.errors import BrokerError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition import AlterPartitionRequest
from kafkaprod.protocol.schema import Response

logger = logging.getLogger(__name__)

RETRY_MS = 50
TURN_UNITS = 200
"""How much of the metadata one turn follows: a replica that is here counts 1, a log that is made or deleted 25."""
LOG_UNITS = 25


class ReplicaManager:
    """See the module docstring.

    Attributes:
        replicas: Those hosted here.
        fetchers: By source broker; none without partitions.
        sessions: What followers wait for.
        offline: The partitions whose replica here is in a log directory that is offline.
    """

    def __init__(
        self,
        broker_id: int,
        image: ClusterImage,
        broker_epoch: Callable[[], int],
        open_log: Callable[[PartitionKey], ReplicaLog],
        drop_log: Callable[[PartitionKey], None],
        min_isr: Callable[[str], int],
        settings: ReplicaSettings,
    ) -> None:
        """Make a manager without replicas.

        Args:
            broker_id: This broker's id.
            image: Followed by `work`.
            broker_epoch: The epoch of the registration in force.
            open_log: Opens or makes a partition's log.
            drop_log: Deletes a partition's log.
            min_isr: The option min.insync.replicas of a topic.
            settings: The settings of all replicas.
        """
        self.replicas: dict[PartitionKey, PartitionReplica] = {}
        self.fetchers: dict[int, Fetcher] = {}
        self.offline: set[PartitionKey] = set()
        self.sessions = FetchSessions(self._fetched, self._on_awake)
        self.isr_requests = IsrRequests(broker_id)
        self._broker_id = broker_id
        self._image = image
        self._broker_epoch = broker_epoch
        self._open_log = open_log
        self._drop_log = drop_log
        self._min_isr = min_isr
        self._settings = settings
        self._known_brokers: dict[int, BrokerImage] = {}
        self._waiting = MetadataQueue()
        self._failed: list[PartitionKey] = []  # tried again at the next tick
        self._eligibility = Eligibility(image.is_active, self._epoch_of)

    @property
    def is_behind(self) -> bool:
        """Whether there is metadata to follow."""
        return bool(self._waiting)

    def is_behind_in(self, topic_id: uuid.UUID) -> bool:
        """Whether a partition of a topic is still to be followed."""
        return self._waiting.has_topic(topic_id)

    def note_metadata(self, changed: Iterable[PartitionKey]) -> None:
        """Note the partitions that have changed; if brokers have, all that are here: their followers may join."""
        if self._known_brokers != self._image.brokers:
            self._known_brokers = dict(self._image.brokers)
            for key in self.replicas:
                self._note(key)
        for key in sorted(changed):
            self._note(key)

    def work(self, now_ms: int, units: int = TURN_UNITS) -> set[PartitionKey]:
        """Follow the image in some of what was noted; return which partitions.

        Args:
            now_ms: The time.
            units: How much to do, at least one partition's worth; see `TURN_UNITS`.
        """
        done = set()
        while units > 0 and (key := self._waiting.take()) is not None:
            count = len(self.replicas)
            try:
                self._follow_image(key, now_ms)
            except LogDirectoryFailedError as error:
                logger.error("partition %s is offline: %s", key, error)
                self.offline.add(key)
            except (KafkaError, OSError) as error:  # the disk refused a log; the others continue
                logger.error("partition %s cannot be followed and will be tried again: %s", key, error)
                self._failed.append(key)
            units -= 1 if len(self.replicas) == count else LOG_UNITS
            done.add(key)
        self.sessions.note_moved(done)
        return done

    def _follow_image(self, key: PartitionKey, now_ms: int) -> None:
        partition = self._image.partitions.get(key)
        if partition is None or self._broker_id not in partition.replicas:
            self._stop(key)
        elif key not in self.offline:
            self._follow(partition, now_ms)

    def fail(self, keys: Iterable[PartitionKey]) -> None:
        """Take replicas out whose log directory can be used no more: they neither lead nor follow."""
        for key in keys:
            replica = self.replicas.get(key)
            if replica is not None:
                replica.is_offline = True
                self._take_out(key)
                self.offline.add(key)
                self.sessions.note_moved((key,))

    def _note(self, key: PartitionKey) -> None:
        partition = self._image.partitions.get(key)
        if partition is None or self._broker_id not in partition.replicas:
            self._waiting.put(key, Presence.GOES)
        else:
            is_here = key in self.replicas or key in self.offline
            self._waiting.put(key, Presence.STAYS if is_here else Presence.COMES)

    def serve(self, request: FetchRequest, now_ms: int) -> FetchAnswer:
        """Answer a follower's request, at once."""
        questions = request.questions
        lookups = {key: lookup for key, lookup in questions.items() if isinstance(lookup, OffsetLookup)}
        if lookups:
            return FetchAnswer({key: self._look_up(key, lookup) for key, lookup in lookups.items()})
        session = self.sessions.begin(request, now_ms)
        if isinstance(session, ErrorCode):
            return FetchAnswer({}, error=session)
        return FetchAnswer(self.sessions.collect(session), session.session_id)

    @property
    def needs_tick(self) -> bool:
        """Whether time alone may demand something: see `tick`."""
        return bool(self._failed or self.sessions.awake)

    def tick(self, now_ms: int) -> None:
        """Propose what time alone demands: ISRs without slow followers, recovery that is done.

        Nothing of the kind is due where all replicas are in sync at the log's end: that is looked at when it moves.
        """
        while self._failed:
            self._note(self._failed.pop())
        for key in list(self.sessions.awake):
            replica = self.replicas.get(key)
            if replica is not None and replica.is_leader:
                for session in self.sessions.waiting_for(key):
                    replica.note_standing(session.follower, session.fetched_ms)
                replica.propose_shrink(now_ms)
                replica.propose_recovered()
            if replica is None or replica.is_quiet:
                del self.sessions.awake[key]

    def next_isr_request(self, now_ms: int) -> AlterPartitionRequest | None:
        """Return the proposals to send to the controller, None if there is nothing to send."""
        return self.isr_requests.next_request(self._broker_epoch(), now_ms)

    def on_isr_answer(self, request: AlterPartitionRequest, answer: Response | None, now_ms: int) -> bool:
        """Take the controller's answer, None if there is none; return whether this broker must register again."""
        return self.isr_requests.on_answer(request, answer, self.replicas, now_ms)

    def _epoch_of(self, broker_id: int) -> int:
        broker = self._image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def _follow(self, partition: PartitionImage, now_ms: int) -> None:
        replica = self.replicas.get(partition.key)
        if replica is None:
            topic = self._image.topics[partition.topic_id].name
            replica = PartitionReplica(
                self._broker_id,
                self._open_log(partition.key),
                self._settings,
                self._eligibility,
                lambda: self._min_isr(topic),
                partition,
                on_proposal=self.isr_requests.add,
            )
            self.replicas[partition.key] = replica
        is_new_epoch = replica.apply(partition, now_ms)
        replica.propose_joins(now_ms)
        if is_new_epoch or replica.is_leader or partition.leader == NO_LEADER:
            self._set_source(partition.key, replica, partition)

    def _set_source(self, key: PartitionKey, replica: PartitionReplica, partition: PartitionImage) -> None:
        for fetcher in self.fetchers.values():
            fetcher.remove(key)
        if not replica.is_leader and partition.leader != NO_LEADER:
            source = partition.leader
            if source not in self.fetchers:
                self.fetchers[source] = Fetcher(
                    source,
                    self._broker_id,
                    self._broker_epoch,
                    retry_ms=RETRY_MS,
                    idle_ms=self._settings.idle_ms,
                    max_wait_ms=self._settings.max_wait_ms,
                )
            self.fetchers[source].add(key, replica.log, partition.leader_epoch)
        for source in [source for source, fetcher in self.fetchers.items() if not len(fetcher)]:
            del self.fetchers[source]

    def _stop(self, key: PartitionKey) -> None:
        if key in self.replicas:
            self._take_out(key)
            self._drop_log(key)
        elif key in self.offline:
            self.offline.remove(key)
            self._drop_log(key)

    def _take_out(self, key: PartitionKey) -> None:
        for fetcher in self.fetchers.values():
            fetcher.remove(key)
        del self.replicas[key]
        self.isr_requests.discard(key)

    def _on_awake(self, key: PartitionKey, follower: int, fetched_ms: int) -> None:
        replica = self.replicas.get(key)
        if replica is not None:
            replica.note_awake(follower, fetched_ms)

    def _fetched(self, key: PartitionKey, question: FollowerFetch, now_ms: int) -> FetchOutcome:
        replica = self.replicas.get(key)
        if replica is None:
            is_offline = key in self.offline
            return FetchOutcome(ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            return replica.fetch(question, now_ms)
        except BrokerError as error:
            return FetchOutcome(error_of(error.code))

    def _look_up(self, key: PartitionKey, question: OffsetLookup) -> OffsetAnswer:
        replica = self.replicas.get(key)
        if replica is None or not replica.is_leader:
            return OffsetAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if question.leader_epoch != replica.leader_epoch:
            return OffsetAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        return OffsetAnswer(ErrorCode.NONE, replica.log.log_start_offset, replica.log.end_offset)
