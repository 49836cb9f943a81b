"""Brokers come, beat, are fenced and shut down: what each of these changes in the log.

A broker is FENCED until it has applied its own registration, then UNFENCED; a controlled shutdown first moves its
leaderships away. Handlers are pure: they read the context and return a decision; only soft state (sessions, offsets)
changes here. Source: Kafka, ClusterControlManager and BrokerHeartbeatManager; KIP-631, KIP-841, KIP-966.
"""

from __future__ import annotations

from kafkaprod.broker.controller import log_directories
from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.elections import elect
from kafkaprod.broker.controller.events import (
    BrokerGone,
    Decision,
    Heartbeat,
    HeartbeatAnswer,
    RegisterBroker,
    Registered,
    SessionExpired,
    TopicAnswer,
    UnregisterBroker,
)
from kafkaprod.broker.metadata.features import reason_not_supported
from kafkaprod.broker.metadata.image import BrokerImage, PartitionImage
from kafkaprod.broker.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Struct

_FENCE = 1
_UNFENCE = -1


def register(context: ControllerContext, event: RegisterBroker, now_ms: int) -> Decision:
    """Register a broker, fenced.

    Refused: INCONSISTENT_CLUSTER_ID, another cluster's id; DUPLICATE_BROKER_REGISTRATION, another process of this id
    whose session lives (it tries again until the session ends); UNSUPPORTED_VERSION, a build without a level that a
    feature has. The same process again gets its epoch again, and no
    record (KAFKA-16952). A new process, or one that did not stop cleanly, leaves every ISR in the same batch, since it
    may have lost what it had acknowledged.
    """
    if event.cluster_id != context.cluster_id:
        return Decision([], Registered(ErrorCode.INCONSISTENT_CLUSTER_ID, -1))
    known = context.image.brokers.get(event.broker_id)
    if known is not None and known.incarnation_id == event.incarnation_id:
        note_life(context, event.broker_id, now_ms)
        return Decision([], Registered(ErrorCode.NONE, known.epoch))
    if known is not None and not known.is_fenced and context.is_alive(known, now_ms):
        return Decision([], Registered(ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1))
    if not _has_levels(context, event):
        return Decision([], Registered(ErrorCode.UNSUPPORTED_VERSION, -1))
    epoch = context.image.end_offset
    records: list[Struct] = [
        RegisterBrokerRecord(
            broker_id=event.broker_id,
            broker_epoch=epoch,
            incarnation_id=event.incarnation_id,
            end_points=[
                BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in event.endpoints
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in event.features.items()
            ],
            rack=event.rack,
            log_dirs=list(event.log_dirs),
        )
    ]
    if known is not None and event.previous_epoch != known.epoch:
        records += _leave(context, event.broker_id)
    elif event.log_dirs:
        records += log_directories.leave(context, event.broker_id, event.log_dirs)
    note_life(context, event.broker_id, now_ms)
    context.applied[event.broker_id] = 0
    context.shutdown_offsets.pop(event.broker_id, None)
    return Decision(records, Registered(ErrorCode.NONE, epoch))


def _has_levels(context: ControllerContext, event: RegisterBroker) -> bool:
    """Return whether a broker's build has all levels that features have."""
    bounds = event.features
    return all(
        reason_not_supported(level, "", bounds.get(name, (0, 0))) is None
        for name, level in context.image.features.items()
    )


def heartbeat(context: ControllerContext, event: Heartbeat, now_ms: int) -> Decision:
    """Note that a broker lives, or has lost a log directory; unfence it, or carry its controlled shutdown on."""
    error = context.broker_error(event.broker_id, event.broker_epoch)
    if error != ErrorCode.NONE:
        return Decision([], HeartbeatAnswer(error))
    broker = context.image.brokers[event.broker_id]
    note_life(context, event.broker_id, event.arrived_ms)
    context.applied[event.broker_id] = max(context.applied.get(event.broker_id, 0), event.metadata_offset)
    failed = log_directories.fail(context, broker, event.offline_log_dirs)
    if failed:
        return Decision(failed, HeartbeatAnswer(ErrorCode.NONE, broker.is_fenced))
    if event.wants_shutdown:
        return _shut_down(context, broker)
    if broker.is_fenced and not event.wants_fence and event.metadata_offset > broker.epoch:
        return Decision(_unfence(context, broker), HeartbeatAnswer(ErrorCode.NONE, is_fenced=False))
    if not broker.is_fenced and event.wants_fence:
        return Decision(fence(context, broker), HeartbeatAnswer(ErrorCode.NONE))
    return Decision([], HeartbeatAnswer(ErrorCode.NONE, broker.is_fenced))


def session_expired(context: ControllerContext, event: SessionExpired, now_ms: int) -> Decision:
    """Fence a broker that was not heard of in time."""
    broker = context.image.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch or broker.is_fenced or context.is_alive(broker, now_ms):
        return Decision([], None)
    return Decision(fence(context, broker), None)


def broker_gone(context: ControllerContext, event: BrokerGone, now_ms: int) -> Decision:
    """Fence a broker whose process has ended, without waiting for its session."""
    broker = context.image.brokers.get(event.broker_id)
    if broker is None or broker.incarnation_id != event.incarnation_id:
        return Decision([], None)
    context.sessions[event.broker_id] = now_ms
    return Decision([] if broker.is_fenced else fence(context, broker), None)


def unregister(context: ControllerContext, event: UnregisterBroker, now_ms: int) -> Decision:
    """Remove a broker's registration; answer with an error and a message.

    Refused: BROKER_ID_NOT_REGISTERED, there is none; INVALID_REQUEST, it is the only broker, or still has replicas,
    whose partitions would wait for it for ever, unless they may do that.
    """
    broker_id = event.broker_id
    broker = context.image.brokers.get(broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        return Decision([], TopicAnswer(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    if len(context.image.brokers) == 1:
        return Decision([], TopicAnswer(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is the only one."))
    if not event.may_have_replicas and any(
        broker_id in partition.replicas for partition in context.image.partitions.values()
    ):
        return Decision([], TopicAnswer(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} still has replicas."))
    context.sessions.pop(broker_id, None)
    context.applied.pop(broker_id, None)
    context.shutdown_offsets.pop(broker_id, None)
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    return Decision([*_leave(context, broker_id), record], TopicAnswer(ErrorCode.NONE))


def fence(context: ControllerContext, broker: BrokerImage) -> list[Struct]:
    """Return the records that fence a broker and elect new leaders for what it leaves."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE)
    return [change, *_leave(context, broker.broker_id)]


def note_life(context: ControllerContext, broker_id: int, now_ms: int) -> None:
    """Let the session of a broker that was heard of begin again."""
    context.sessions[broker_id] = max(context.sessions.get(broker_id, 0), now_ms + context.session_timeout_ms)


def _leave(context: ControllerContext, broker_id: int) -> list[Struct]:
    """Return the changes of all partitions that have the broker in their ISR, or for leader."""
    return log_directories.leave_isrs(context, broker_id, context.image.partitions_of(broker_id))


def _unfence(context: ControllerContext, broker: BrokerImage) -> list[Struct]:
    """Return the records that unfence a broker, and elect it where a partition waits for it."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    elections = (
        elect(
            partition,
            context.image.may_lead(partition, unfenced=broker.broker_id),
            may_be_unclean=context.may_be_unclean(partition),
        )
        for partition in context.leaderless()
        if broker.broker_id in partition.replicas
    )
    return [change, *(election for election in elections if election is not None)]


def _shut_down(context: ControllerContext, broker: BrokerImage) -> Decision:
    """Carry a controlled shutdown one step on: mark it, move its leaderships, let it end."""
    if broker.is_fenced:
        return Decision([], HeartbeatAnswer(ErrorCode.NONE, should_shut_down=True))
    if not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        records = [change, *_leave(context, broker.broker_id)]
        context.shutdown_offsets[broker.broker_id] = context.image.end_offset + len(records)
        return Decision(records, HeartbeatAnswer(ErrorCode.NONE, is_fenced=False))
    may_end = not _leads(context, broker.broker_id) and _others_have_reached(
        context, broker.broker_id, context.shutdown_offsets.setdefault(broker.broker_id, context.image.end_offset)
    )
    return Decision([], HeartbeatAnswer(ErrorCode.NONE, is_fenced=False, should_shut_down=may_end))


def _leads(context: ControllerContext, broker_id: int) -> bool:
    """Whether a broker leads a partition that another replica could lead."""

    def has_successor(partition: PartitionImage) -> bool:
        may_lead = context.image.may_lead(partition)
        return any(member != broker_id and may_lead(member) for member in partition.isr)

    return any(
        partition.leader == broker_id and has_successor(partition)
        for partition in context.image.partitions_of(broker_id)
    )


def _others_have_reached(context: ControllerContext, broker_id: int, offset: int) -> bool:
    return all(
        context.applied.get(other.broker_id, 0) >= offset
        for other in context.image.brokers.values()
        if other.is_active and other.broker_id != broker_id
    )
