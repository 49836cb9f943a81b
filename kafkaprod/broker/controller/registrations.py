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
    RemoveBroker,
    SessionExpired,
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
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kafkaprod.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kafkaprod.protocol.schema import Struct

_FENCE = 1
_UNFENCE = -1


def register(context: ControllerContext, request: BrokerRegistrationRequest, now_ms: int) -> Decision:
    """Register a broker, fenced.

    Refused: INCONSISTENT_CLUSTER_ID, another cluster's id; DUPLICATE_BROKER_REGISTRATION, another process of this id
    whose session lives (it tries again until the session ends); UNSUPPORTED_VERSION, a build without a level that a
    feature has; INVALID_REQUEST, a process without an id. The same process again gets its epoch again, and no
    record (KAFKA-16952). A new process, or one that did not stop cleanly, leaves every ISR in the same batch, since it
    may have lost what it had acknowledged.
    """
    if request.cluster_id != context.cluster_id:
        return _not_registered(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.incarnation_id is None:
        return _not_registered(ErrorCode.INVALID_REQUEST)
    known = context.image.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        note_life(context, request.broker_id, now_ms)
        return Decision([], BrokerRegistrationResponse(broker_epoch=known.epoch))
    if known is not None and not known.is_fenced and context.is_alive(known, now_ms):
        return _not_registered(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    if not _has_levels(context, request):
        return _not_registered(ErrorCode.UNSUPPORTED_VERSION)
    epoch = context.image.end_offset
    records: list[Struct] = [
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            broker_epoch=epoch,
            incarnation_id=request.incarnation_id,
            end_points=[
                BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
            rack=request.rack,
            log_dirs=request.log_dirs,
        )
    ]
    if known is not None and request.previous_broker_epoch != known.epoch:
        records += _leave(context, request.broker_id)
    elif request.log_dirs:
        records += log_directories.leave(context, request.broker_id, request.log_dirs)
    note_life(context, request.broker_id, now_ms)
    context.applied[request.broker_id] = 0
    context.shutdown_offsets.pop(request.broker_id, None)
    return Decision(records, BrokerRegistrationResponse(broker_epoch=epoch))


def _not_registered(error: ErrorCode) -> Decision:
    return Decision([], BrokerRegistrationResponse(error_code=error))


def _has_levels(context: ControllerContext, request: BrokerRegistrationRequest) -> bool:
    """Return whether a broker's build has all levels that features have."""
    bounds = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    return all(
        reason_not_supported(level, "", bounds.get(name, (0, 0))) is None
        for name, level in context.image.features.items()
    )


def heartbeat(context: ControllerContext, request: BrokerHeartbeatRequest, now_ms: int) -> Decision:
    """Note what a broker has applied, or has lost; unfence it, or carry its controlled shutdown on.

    That it lives was noted when the request came.
    """
    error = context.broker_error(request.broker_id, request.broker_epoch)
    if error != ErrorCode.NONE:
        return _beaten([], error=error)
    broker = context.image.brokers[request.broker_id]
    offset = request.current_metadata_offset
    context.applied[request.broker_id] = max(context.applied.get(request.broker_id, 0), offset)
    failed = log_directories.fail(context, broker, request.offline_log_dirs)
    if failed:
        return _beaten(failed, is_fenced=broker.is_fenced)
    if request.want_shut_down:
        return _shut_down(context, broker)
    if broker.is_fenced and not request.want_fence and offset > broker.epoch:
        return _beaten(_unfence(context, broker), is_fenced=False)
    if not broker.is_fenced and request.want_fence:
        return _beaten(fence(context, broker))
    return _beaten([], is_fenced=broker.is_fenced)


def _beaten(
    records: list[Struct],
    *,
    error: ErrorCode = ErrorCode.NONE,
    is_fenced: bool = True,
    should_shut_down: bool = False,
) -> Decision:
    """Return the decision on a heartbeat."""
    response = BrokerHeartbeatResponse(
        error_code=error, is_caught_up=True, is_fenced=is_fenced, should_shut_down=should_shut_down
    )
    return Decision(records, response)


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


def unregister(context: ControllerContext, request: UnregisterBrokerRequest, now_ms: int) -> Decision:
    """Remove a broker's registration; it may have replicas, which leave their ISRs, as Kafka's clients want it.

    Refused: BROKER_ID_NOT_REGISTERED, no such broker; INVALID_REQUEST, it is the only broker.
    """
    broker_id = request.broker_id
    broker = context.image.brokers.get(broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        return _kept(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    if len(context.image.brokers) == 1:
        return _kept(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is the only one.")
    context.sessions.pop(broker_id, None)
    context.applied.pop(broker_id, None)
    context.shutdown_offsets.pop(broker_id, None)
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    return Decision([*_leave(context, broker_id), record], UnregisterBrokerResponse())


def remove(context: ControllerContext, event: RemoveBroker, now_ms: int) -> Decision:
    """Remove the registration of a broker without replicas, whose partitions would wait for it for ever.

    Refused: as `unregister`; INVALID_REQUEST, it has replicas.
    """
    brokers = context.image.brokers
    if event.broker_id in brokers and len(brokers) > 1 and any(context.image.partitions_of(event.broker_id)):
        return _kept(ErrorCode.INVALID_REQUEST, f"Broker {event.broker_id} still has replicas.")
    return unregister(context, UnregisterBrokerRequest(broker_id=event.broker_id), now_ms)


def _kept(error: ErrorCode, message: str) -> Decision:
    return Decision([], UnregisterBrokerResponse(error_code=error, error_message=message))


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
        return _beaten([], should_shut_down=True)
    if not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        records = [change, *_leave(context, broker.broker_id)]
        context.shutdown_offsets[broker.broker_id] = context.image.end_offset + len(records)
        return _beaten(records, is_fenced=False)
    may_end = not _leads(context, broker.broker_id) and _others_have_reached(
        context, broker.broker_id, context.shutdown_offsets.setdefault(broker.broker_id, context.image.end_offset)
    )
    return _beaten([], is_fenced=False, should_shut_down=may_end)


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
