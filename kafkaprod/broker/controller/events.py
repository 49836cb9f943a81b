"""What the controller is asked to do, and what it answers. Values; `Reply` takes each answer exactly once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkaprod.broker.metadata.features import SUPPORTED
from kafkaprod.broker.metadata.image import PartitionKey, RecoveryState
from kafkaprod.broker.metadata.records import DelegationTokenRecord
from kafkaprod.broker.metadata.tokens import TokenHmac
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Request, Struct

Reply = Callable[[Any], None]


def no_reply(_: Any) -> None:
    """Take an answer that no one waits for."""


class Asked(NamedTuple):
    """A request, which is an event as it is; `reply` takes its response."""

    body: Request
    reply: Reply = no_reply


class RegisterBroker(NamedTuple):
    """A broker process starts.

    `previous_epoch`: of its last clean stop, -1 if it did not stop cleanly. `log_dirs`: the ids of its log directories
    that can be used; it may name none.
    """

    broker_id: int
    incarnation_id: uuid.UUID
    cluster_id: str
    rack: str | None = None
    previous_epoch: int = -1
    endpoints: tuple[tuple[str, str, int, int], ...] = ()
    features: Mapping[str, tuple[int, int]] = SUPPORTED
    log_dirs: tuple[uuid.UUID, ...] = ()
    reply: Reply = no_reply


class Registered(NamedTuple):
    """The answer to RegisterBroker; the epoch is -1 if it was refused."""

    error: ErrorCode
    broker_epoch: int


class Heartbeat(NamedTuple):
    """A broker is alive, and has applied the log below `metadata_offset`. `arrived_ms` is when the request came.

    `offline_log_dirs`: those that it can use no more.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    wants_fence: bool
    wants_shutdown: bool
    arrived_ms: int
    offline_log_dirs: tuple[uuid.UUID, ...] = ()
    reply: Reply = no_reply


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat."""

    error: ErrorCode
    is_fenced: bool = True
    should_shut_down: bool = False


class SessionExpired(NamedTuple):
    """No heartbeat came in time."""

    broker_id: int
    broker_epoch: int
    reply: Reply = no_reply


class UnregisterBroker(NamedTuple):
    """A broker is removed from the cluster.

    Attributes:
        broker_id: Its id.
        may_have_replicas: It is removed even if it has some, which leave their ISRs, as Kafka's clients want it.
    """

    broker_id: int
    may_have_replicas: bool = False
    reply: Reply = no_reply


class BrokerGone(NamedTuple):
    """A broker's process has ended."""

    broker_id: int
    incarnation_id: uuid.UUID
    reply: Reply = no_reply


class CreateTopic(NamedTuple):
    """Create a topic, by counts or with the replicas of each partition given; or only check whether it could be."""

    name: str
    partition_count: int = 1
    replication_factor: int = 1
    assignment: tuple[tuple[int, ...], ...] | None = None
    configs: Mapping[str, str] = MappingProxyType({})
    topic_id: uuid.UUID | None = None
    validate_only: bool = False
    reply: Reply = no_reply


class CreatePartitions(NamedTuple):
    """Raise a topic's number of partitions, or only check whether it could be raised.

    Attributes:
        assignment: The replicas of each new partition; None lets the controller place them.
    """

    name: str
    partition_count: int
    assignment: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False
    reply: Reply = no_reply


class DeleteTopic(NamedTuple):
    """Delete a topic."""

    name: str
    reply: Reply = no_reply


class AlterConfig(NamedTuple):
    """Set an option of a resource; None deletes it."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None
    reply: Reply = no_reply


class TopicAnswer(NamedTuple):
    """The answer to a change of a topic."""

    error: ErrorCode
    message: str | None = None
    topic_id: uuid.UUID | None = None


class IsrMember(NamedTuple):
    """A member of a proposed ISR; the epoch is of the registration that the leader knows, -1 if unknown."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """A leader's proposal for one partition."""

    key: PartitionKey
    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]
    recovery_state: RecoveryState


class AlterPartition(NamedTuple):
    """A leader proposes ISRs."""

    broker_id: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]
    reply: Reply = no_reply


class IsrOutcome(NamedTuple):
    """The answer for one partition; the state is the controller's, also if it is unchanged."""

    key: PartitionKey
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    recovery_state: RecoveryState = RecoveryState.RECOVERED


class AlterPartitionAnswer(NamedTuple):
    """The answer to AlterPartition: an error for all, or one outcome a proposal."""

    error: ErrorCode
    outcomes: tuple[IsrOutcome, ...] = ()


class ElectionType(IntEnum):
    """What ElectLeaders does."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeaders(NamedTuple):
    """Elect leaders of partitions; None means all."""

    election_type: ElectionType
    keys: tuple[PartitionKey, ...] | None
    reply: Reply = no_reply


class MoveLeader(NamedTuple):
    """Make a member of the ISR leader."""

    key: PartitionKey
    to: int
    reply: Reply = no_reply


class Reassign(NamedTuple):
    """Move a partition to other replicas; None cancels a reassignment that is in progress."""

    key: PartitionKey
    replicas: tuple[int, ...] | None
    reply: Reply = no_reply


class ChangeSettings(NamedTuple):
    """Write records of options, access control entries, quotas and credentials."""

    records: tuple[Struct, ...]
    reply: Reply = no_reply


class SettingsAnswer(NamedTuple):
    """The answer to ChangeSettings: the end of the log with which the change can be seen."""

    error: ErrorCode
    end_offset: int = -1


class UpdateFeatures(NamedTuple):
    """Change levels of features, or only check whether they could be changed.

    Attributes:
        controller_id: The controller's node, for messages.
        levels: By name: the level, and the kind of change (`features.UpgradeType`).
    """

    controller_id: int
    levels: Mapping[str, tuple[int, int]]
    validate_only: bool = False
    reply: Reply = no_reply


class CreateToken(NamedTuple):
    """Make a delegation token. Principals as "User:ann"; a lifetime of 0 or less is the longest."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int
    reply: Reply = no_reply


class RenewToken(NamedTuple):
    """Move a token's end away; a period of 0 or less is the usual one."""

    hmac: TokenHmac
    requester: str
    period_ms: int
    reply: Reply = no_reply


class ExpireToken(NamedTuple):
    """Bring a token's end nearer; a period below 0 removes it at once."""

    hmac: TokenHmac
    requester: str
    period_ms: int
    reply: Reply = no_reply


class TokenAnswer(NamedTuple):
    """The answer to a change of a token: the token as it is now, and the secret of a new one."""

    error: ErrorCode
    token: DelegationTokenRecord | None = None
    hmac: TokenHmac = TokenHmac()


class SweepTokens(NamedTuple):
    """The timer that removes tokens that are over."""

    reply: Reply = no_reply


class LookForLeaders(NamedTuple):
    """The timer that gives leaderless partitions a leader where unclean elections are allowed."""

    reply: Reply = no_reply


ControllerEvent = (
    Asked
    | RegisterBroker
    | Heartbeat
    | SessionExpired
    | UnregisterBroker
    | BrokerGone
    | CreateTopic
    | CreatePartitions
    | DeleteTopic
    | AlterConfig
    | AlterPartition
    | ElectLeaders
    | MoveLeader
    | Reassign
    | ChangeSettings
    | UpdateFeatures
    | CreateToken
    | RenewToken
    | ExpireToken
    | SweepTokens
    | LookForLeaders
)


class Decision(NamedTuple):
    """What a handler decides: records to append as one batch, and the answer once they are committed."""

    records: list[Any]
    answer: Any
