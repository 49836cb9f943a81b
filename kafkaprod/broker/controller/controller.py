"""The controller: takes one event at a time, appends what its handler decides, and answers when that is committed.

    event = queue.take(now)
    records, answer = handler(context, event, now)      pure
    log.append(epoch, records)                          one batch, committed at once (a quorum of one)
    image.apply(records)
    channels.wake(), event.reply(answer)

A handler that raises appends nothing; its event is answered UNKNOWN_SERVER_ERROR, and the next one is taken. A new
controller process replays its log and continues with the next epoch. Not thread-safe: one thread calls it. Time is an
argument.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kafkaprod.broker.controller import (
    features,
    log_directories,
    partitions,
    reassignments,
    registrations,
    settings,
    topics,
)
from kafkaprod.broker.controller import tokens as token_changes
from kafkaprod.broker.controller.channels import BrokerChannel
from kafkaprod.broker.controller.context import CONTROLLER_ID, MIN_ISR_OPTION, UNCLEAN_OPTION, ControllerContext
from kafkaprod.broker.controller.event_queue import EventQueue
from kafkaprod.broker.controller.events import (
    AdoptTopic,
    Asked,
    BrokerGone,
    ControllerEvent,
    Decision,
    LookForLeaders,
    MoveLeader,
    RemoveBroker,
    SessionExpired,
    SweepTokens,
)
from kafkaprod.broker.metadata.follower import MetadataSlice, SliceAnswer
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.image_records import image_of, records_of
from kafkaprod.broker.metadata.log import NO_EPOCH, MetadataBatch, MetadataLog, MetadataSnapshot
from kafkaprod.broker.metadata.records import NoOpRecord
from kafkaprod.broker.metadata.tokens import TokenConfig
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkaprod.protocol.messages.alter_partition import AlterPartitionRequest
from kafkaprod.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkaprod.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest
from kafkaprod.protocol.messages.change_settings import ChangeSettingsRequest
from kafkaprod.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkaprod.protocol.messages.create_topics import CreateTopicsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkaprod.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkaprod.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkaprod.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkaprod.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkaprod.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkaprod.protocol.messages.update_features import UpdateFeaturesRequest
from kafkaprod.protocol.schema import Struct

DEFAULT_CONFIGS: Final = {UNCLEAN_OPTION: "false", MIN_ISR_OPTION: "1"}
LEADER_CHECK_MS: Final = 1000
NO_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})

logger = logging.getLogger("kafkaprod.broker.controller")

EventHandler = Callable[[ControllerContext, Any, int], Decision]

HANDLERS: Final[Mapping[type[Any], EventHandler]] = {
    # -- requests
    BrokerRegistrationRequest: registrations.register,
    BrokerHeartbeatRequest: registrations.heartbeat,
    UnregisterBrokerRequest: registrations.unregister,
    CreateTopicsRequest: topics.create,
    CreatePartitionsRequest: topics.create_partitions,
    DeleteTopicsRequest: topics.delete,
    IncrementalAlterConfigsRequest: topics.alter_configs,
    AlterPartitionRequest: partitions.alter_partition,
    AssignReplicasToDirsRequest: log_directories.assign,
    ElectLeadersRequest: partitions.elect_leaders,
    AlterPartitionReassignmentsRequest: reassignments.reassign,
    AllocateProducerIdsRequest: partitions.allocate_producer_ids,
    ChangeSettingsRequest: settings.change,
    UpdateFeaturesRequest: features.update,
    CreateDelegationTokenRequest: token_changes.create,
    RenewDelegationTokenRequest: token_changes.renew,
    ExpireDelegationTokenRequest: token_changes.expire,
    # -- timers, and wishes of the host
    SessionExpired: registrations.session_expired,
    BrokerGone: registrations.broker_gone,
    RemoveBroker: registrations.remove,
    AdoptTopic: topics.adopt,
    MoveLeader: partitions.move,
    SweepTokens: token_changes.sweep,
    LookForLeaders: partitions.look_for_leaders,
}


class Controller:
    """See the module docstring.

    Attributes:
        epoch: The epoch of this controller process; brokers refuse older ones.
        queue: Where requests are put.
        log: The metadata log; all of it is committed.
        channels: To the registered brokers, by broker id.
    """

    def __init__(
        self,
        cluster_id: str,
        *,
        session_timeout_ms: int,
        seed: int,
        now_ms: int,
        batches: Sequence[MetadataBatch] = (),
        snapshot: MetadataSnapshot | None = None,
        persist: Callable[[MetadataBatch, ClusterImage], object] | None = None,
        default_configs: Mapping[str, str] = DEFAULT_CONFIGS,
        voter_id: int = CONTROLLER_ID,
        levels: Mapping[str, int] = NO_LEVELS,
        tokens: TokenConfig | None = None,
    ) -> None:
        """Start a controller process on the log that an earlier one left.

        Args:
            cluster_id: Brokers of other clusters are refused.
            session_timeout_ms: A broker that does not beat for this time is fenced.
            seed: The seed of the generator that places replicas.
            now_ms: The time.
            batches: The log so far, from the end of the snapshot on, if there is one.
            snapshot: What the log had before.
            persist: Called with each new batch, before anything else sees it, and the image that it will change.
            default_configs: Options of topics that do not set them.
            voter_id: The node that is the quorum.
            tokens: Options of delegation tokens; None: there are none.
            levels: Levels that features get with this start; a new log has the default of others.
        """
        start = (0, NO_EPOCH) if snapshot is None else (snapshot.end_offset, snapshot.epoch)
        self.log = MetadataLog(batches, *start)
        self.epoch = self.log.last_epoch + 1
        self.queue: EventQueue[ControllerEvent] = EventQueue()
        self.channels: dict[int, BrokerChannel] = {}
        self._persist = persist
        # Another sequence for each process: the same one would give new topics the ids of old ones.
        generator = random.Random(f"{seed} {self.epoch}")
        self.context = ControllerContext(
            cluster_id, session_timeout_ms, dict(default_configs), generator, tokens or TokenConfig(), voter_id=voter_id
        )
        self._snapshot: MetadataSnapshot | None = None  # the newest one that was taken
        if snapshot is not None:
            self.context.image = image_of(snapshot.records, snapshot.end_offset)
        for batch in batches:
            self._apply(batch)
        self._append([*features.missing_levels(self.context.image, levels), NoOpRecord()], now_ms)
        for broker in self.context.image.brokers.values():
            self.context.sessions[broker.broker_id] = now_ms + session_timeout_ms
        self._follow_registrations(now_ms)
        self.queue.at(now_ms + LEADER_CHECK_MS, "leaders", LookForLeaders())
        self._await_sweep(now_ms, is_due=False)

    def turn(self, now_ms: int) -> bool:
        """Handle one event; return whether there was one.

        Raises:
            LogError: The disk refused the records; the event is answered KAFKA_STORAGE_ERROR, and changed nothing.
        """
        event = self.queue.take(now_ms)
        if event is None:
            return False
        try:
            asked: Any = event
            if isinstance(event, Asked):
                asked, self.context.requester = event.body, event.requester
            decision = HANDLERS[type(asked)](self.context, asked, now_ms)
        except Exception:
            logger.exception("the controller failed to handle %r", event)
            event.reply(_refusal(event, ErrorCode.UNKNOWN_SERVER_ERROR))
            return True
        if decision.records:
            try:
                self._append(decision.records, now_ms)
            except LogError:
                event.reply(_refusal(event, ErrorCode.KAFKA_STORAGE_ERROR))
                raise
        self._follow_registrations(now_ms)
        if isinstance(event, LookForLeaders):
            self.queue.at(now_ms + LEADER_CHECK_MS, "leaders", event)
        elif isinstance(event, SweepTokens):
            self._await_sweep(now_ms, is_due=decision.answer)
        event.reply(decision.answer)
        return True

    def note_heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Note that a broker lives when its heartbeat comes: thousands of events may be before it in the queue."""
        if self.context.broker_error(request.broker_id, request.broker_epoch) == ErrorCode.NONE:
            registrations.note_life(self.context, request.broker_id, now_ms)

    def extend_sessions(self, paused_ms: int, now_ms: int) -> None:
        """Give every broker the time in which this process was paused and could not take heartbeats."""
        for broker_id in self.context.sessions:
            self.context.sessions[broker_id] += paused_ms
        self._follow_registrations(now_ms)

    def next_slice(self, broker_id: int, now_ms: int) -> MetadataSlice | None:
        """Return what must be sent to a broker now, None if nothing is due."""
        channel = self.channels.get(broker_id)
        if channel is None:
            return None
        return channel.next_slice(self.log, self.epoch, self.log.end_offset, now_ms, self.take_snapshot)

    def take_snapshot(self) -> MetadataSnapshot:
        """Return a snapshot of all of the log."""
        end_offset = self.log.end_offset
        if self._snapshot is None or self._snapshot.end_offset != end_offset:
            self._snapshot = MetadataSnapshot(end_offset, self.log.last_epoch, tuple(records_of(self.context.image)))
        return self._snapshot

    def cut_log(self, end_offset: int) -> None:
        """Drop the log below an offset, of which a snapshot is kept: brokers that lack it are sent a newer one."""
        self.log.forget(end_offset)

    def on_slice_answer(self, channel: BrokerChannel, sent: MetadataSlice, answer: SliceAnswer, now_ms: int) -> None:
        """Take a broker's answer to a slice: it has applied the log up to there, which its next heartbeat says, too."""
        channel.on_answer(sent, answer, now_ms)
        if answer.error == ErrorCode.NONE and self.channels.get(channel.broker_id) is channel:
            applied = self.context.applied
            applied[channel.broker_id] = max(
                applied.get(channel.broker_id, 0), min(answer.end_offset, sent.commit_offset)
            )

    def next_deadline_ms(self) -> int | None:
        """Return when `turn` or `next_slice` has something to do, None if never without a new event."""
        deadlines = [channel.next_deadline_ms() for channel in self.channels.values() if not channel.is_ended]
        timer = self.queue.next_deadline_ms()
        return min([*deadlines, *([] if timer is None else [timer])], default=None)

    def _await_sweep(self, now_ms: int, *, is_due: bool) -> None:
        """Set the timer that removes tokens that are over."""
        tokens = self.context.tokens
        if tokens.is_enabled:
            self.queue.at(now_ms + (0 if is_due else tokens.expiry_check_interval_ms), "tokens", SweepTokens())

    def _append(self, records: Sequence[Struct], now_ms: int) -> None:
        batch = MetadataBatch(self.log.end_offset, self.epoch, tuple(records))
        if self._persist is not None:
            self._persist(batch, self.context.image)
        self.log.append(batch)
        self._apply(batch)
        for channel in self.channels.values():
            channel.wake(now_ms)

    def _apply(self, batch: MetadataBatch) -> None:
        for delta, record in enumerate(batch.records):
            self.context.image.apply(batch.base_offset + delta, record)

    def _follow_registrations(self, now_ms: int) -> None:
        """Keep one channel and one session timer for each registration."""
        brokers = self.context.image.brokers
        for broker_id in [known for known in self.channels if known not in brokers]:
            del self.channels[broker_id]
            self.queue.cancel(f"session {broker_id}")
        for broker in brokers.values():
            channel = self.channels.get(broker.broker_id)
            if channel is None or channel.broker_epoch != broker.epoch:
                self.channels[broker.broker_id] = BrokerChannel(broker.broker_id, broker.epoch)
            ends_ms = self.context.sessions.get(broker.broker_id)  # none: it is about to register (`OwnController`)
            if not broker.is_fenced and ends_ms is not None:
                self.queue.at(ends_ms, f"session {broker.broker_id}", SessionExpired(broker.broker_id, broker.epoch))
            else:
                self.queue.cancel(f"session {broker.broker_id}")


def _refusal(event: ControllerEvent, error: ErrorCode) -> Any:
    """Return the answer to an event that could not be handled."""
    return event.refuse(error) if isinstance(event, Asked) else error
