"""The partitions of a broker: follows the image, and says which fetches, proposals and answers are due.

`on_metadata` takes the partitions that a slice of metadata changed: replicas are made, lead, follow or go. A follower's
fetcher is removed before its log's end is read, and added again behind it, so that no answer in flight meets a changed
log. Not thread-safe; time is an argument. Source: Kafka, ReplicaManager and ReplicaFetcherManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkaprod.broker.controller.events import AlterPartition, AlterPartitionAnswer
from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage, PartitionKey
from kafkaprod.broker.metadata.records import NO_LEADER
from kafkaprod.broker.replication.fetch_sessions import FetchSessions
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher, FetchRequest, OffsetAnswer, OffsetLookup
from kafkaprod.broker.replication.isr_requests import IsrRequests
from kafkaprod.broker.replication.partition import (
    Eligibility,
    FetchOutcome,
    FollowerFetch,
    PartitionReplica,
    ReplicaSettings,
)
from kafkaprod.broker.replication.replica_log import ReplicaLog
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode

RETRY_MS = 50


class ReplicaManager:
    """See the module docstring.

    Attributes:
        replicas: Those hosted here.
        fetchers: By source broker; none without partitions.
        sessions: What followers wait for.
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
            image: Followed by `on_metadata`.
            broker_epoch: The epoch of the registration in force.
            open_log: Opens or makes a partition's log.
            drop_log: Deletes a partition's log.
            min_isr: The option min.insync.replicas of a topic.
            settings: The settings of all replicas.
        """
        self.replicas: dict[PartitionKey, PartitionReplica] = {}
        self.fetchers: dict[int, Fetcher] = {}
        self.sessions = FetchSessions(self._fetched)
        self.isr_requests = IsrRequests(broker_id)
        self._broker_id = broker_id
        self._image = image
        self._broker_epoch = broker_epoch
        self._open_log = open_log
        self._drop_log = drop_log
        self._min_isr = min_isr
        self._settings = settings
        self._known_brokers: dict[int, BrokerImage] = {}
        self._eligibility = Eligibility(image.is_active, self._epoch_of)

    def on_metadata(self, changed: Iterable[PartitionKey], now_ms: int) -> None:
        """Follow the image in the partitions that have changed, and in what it says of brokers."""
        keys = sorted(changed)
        for key in keys:
            partition = self._image.partitions.get(key)
            if partition is None or self._broker_id not in partition.replicas:
                self._stop(key)
            else:
                self._follow(partition, now_ms)
        if self._known_brokers != self._image.brokers:
            self._known_brokers = dict(self._image.brokers)
            for replica in self.replicas.values():
                replica.propose_joins(now_ms)
        self.sessions.note_moved(keys)

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

    def tick(self, now_ms: int) -> None:
        """Propose what time alone demands: ISRs without slow followers, recovery that is done."""
        for session in self.sessions:
            for key in session.standing:
                standing = self.replicas.get(key)
                if standing is not None:
                    standing.note_standing(session.follower, session.fetched_ms)
        for replica in self.replicas.values():
            replica.propose_shrink(now_ms)
            replica.propose_recovered()

    def next_isr_request(self, now_ms: int) -> AlterPartition | None:
        """Return the proposals to send to the controller, None if there is nothing to send."""
        return self.isr_requests.next_request(self._broker_epoch(), now_ms)

    def on_isr_answer(self, request: AlterPartition, answer: AlterPartitionAnswer | ErrorCode, now_ms: int) -> bool:
        """Take the controller's answer; return whether this broker must register again."""
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
        if key not in self.replicas:
            return
        for fetcher in self.fetchers.values():
            fetcher.remove(key)
        del self.replicas[key]
        self.isr_requests.discard(key)
        self._drop_log(key)

    def _fetched(self, key: PartitionKey, question: FollowerFetch, now_ms: int) -> FetchOutcome:
        replica = self.replicas.get(key)
        if replica is None:
            return FetchOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
