"""kafka-python's `kafka.errors`, and what each error of kafkaprod is there.

Where kafka-python is installed, they are its own classes: what catches the errors of its consumers and admin clients
catches those of this producer, and the other way round. Elsewhere they are made of the tables below: their names are
kafka-python's, the codes Kafka's.
"""

from __future__ import annotations

from typing import Any, Final

from kafkaprod import errors as ours
from kafkaprod.compat import translation
from kafkaprod.compat.originals import Kind, original, taken

_ORIGINAL: Final = "kafka.errors"


def _or_the_original(ours: Kind) -> Kind:
    """Return kafka-python's class in place of one with its name, where kafka-python has it."""
    return taken(_ORIGINAL, ours)


@_or_the_original
class KafkaError(Exception):
    """Base of all. `retriable`: the call may succeed later; `invalid_metadata`: the metadata is out of date."""

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


@_or_the_original
class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


@_or_the_original
class InvalidMetadataError(RetriableError):
    """The metadata is out of date."""

    invalid_metadata = True


@_or_the_original
class IllegalStateError(KafkaError):
    """The call is not legal in this state."""


@_or_the_original
class KafkaConfigurationError(KafkaError):
    """An option has a wrong value or conflicts with another."""


class OptionError(KafkaConfigurationError, ValueError):
    """An option has a wrong value or is not offered."""


@_or_the_original
class KafkaConnectionError(InvalidMetadataError):
    """A connection failed."""


@_or_the_original
class NoBrokersAvailable(KafkaConnectionError):
    """No bootstrap server could be used. kafka-python 2 raises it from the constructor, as this package does."""


@_or_the_original
class KafkaTimeoutError(RetriableError):
    """Something did not happen in time."""


@_or_the_original
class TransactionAbortedError(KafkaError):
    """The record was not sent because its transaction was aborted."""


@_or_the_original
class BrokerResponseError(KafkaError):
    """A broker answered an error code."""

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


@_or_the_original
class AuthorizationError(BrokerResponseError):
    """The user may not do this."""


# Name and base of errors without a code.
_LOCAL: Final = {
    "Cancelled": RetriableError,
    "CommitFailedError": KafkaError,
    "IllegalArgumentError": KafkaError,
    "KafkaProtocolError": KafkaError,
    "LogTruncationError": KafkaError,
    "MetadataEmptyBrokerList": RetriableError,
    "NoOffsetForPartitionError": KafkaError,
    "NodeNotReadyError": RetriableError,
    "QuotaViolationError": KafkaError,
    "StaleMetadata": InvalidMetadataError,
    "TooManyInFlightRequests": RetriableError,
    "UnknownBrokerIdError": KafkaError,
    "UnrecognizedBrokerVersion": KafkaError,
    "UnsupportedCodecError": KafkaError,
}

# Names of the codes from -1 on, without the "Error" at their ends.
_STEMS: Final = """
    Unknown No OffsetOutOfRange CorruptRecord UnknownTopicOrPartition InvalidFetchRequest LeaderNotAvailable
    NotLeaderForPartition RequestTimedOut BrokerNotAvailable ReplicaNotAvailable MessageSizeTooLarge
    StaleControllerEpoch OffsetMetadataTooLarge NetworkException CoordinatorLoadInProgress CoordinatorNotAvailable
    NotCoordinator InvalidTopic RecordListTooLarge NotEnoughReplicas NotEnoughReplicasAfterAppend InvalidRequiredAcks
    IllegalGeneration InconsistentGroupProtocol InvalidGroupId UnknownMemberId InvalidSessionTimeout
    RebalanceInProgress InvalidCommitOffsetSize TopicAuthorizationFailed GroupAuthorizationFailed
    ClusterAuthorizationFailed InvalidTimestamp UnsupportedSaslMechanism IllegalSaslState UnsupportedVersion
    TopicAlreadyExists InvalidPartitions InvalidReplicationFactor InvalidReplicationAssignment InvalidConfiguration
    NotController InvalidRequest UnsupportedForMessageFormat PolicyViolation OutOfOrderSequenceNumber
    DuplicateSequenceNumber InvalidProducerEpoch InvalidTxnState InvalidProducerIdMapping InvalidTransactionTimeout
    ConcurrentTransactions TransactionCoordinatorFenced TransactionalIdAuthorizationFailed SecurityDisabled
    OperationNotAttempted KafkaStorage LogDirNotFound SaslAuthenticationFailed UnknownProducerId ReassignmentInProgress
    DelegationTokenAuthDisabled DelegationTokenNotFound DelegationTokenOwnerMismatch DelegationTokenRequestNotAllowed
    DelegationTokenAuthorizationFailed DelegationTokenExpired InvalidPrincipalType NonEmptyGroup GroupIdNotFound
    FetchSessionIdNotFound InvalidFetchSessionEpoch ListenerNotFound TopicDeletionDisabled FencedLeaderEpoch
    UnknownLeaderEpoch UnsupportedCompressionType StaleBrokerEpoch OffsetNotAvailable MemberIdRequired
    PreferredLeaderNotAvailable GroupMaxSizeReached FencedInstanceId EligibleLeadersNotAvailable ElectionNotNeeded
    NoReassignmentInProgress GroupSubscribedToTopic InvalidRecord UnstableOffsetCommit ThrottlingQuotaExceeded
    ProducerFenced ResourceNotFound DuplicateResource UnacceptableCredential InconsistentVoterSet InvalidUpdateVersion
    FeatureUpdateFailed PrincipalDeserializationFailure SnapshotNotFound PositionOutOfRange UnknownTopicId
    DuplicateBrokerRegistration BrokerIdNotRegistered InconsistentTopicId InconsistentClusterId TransactionalIdNotFound
    FetchSessionTopicId IneligibleReplica NewLeaderElected OffsetMovedToTieredStorage FencedMemberEpoch
    UnreleasedInstanceId UnsupportedAssignor StaleMemberEpoch MismatchedEndpointType UnsupportedEndpointType
    UnknownControllerId UnknownSubscriptionId TelemetryTooLarge InvalidRegistration TransactionAbortable
    InvalidRecordState ShareSessionNotFound InvalidShareSessionEpoch FencedStateEpoch InvalidVoterKey DuplicateVoter
    VoterNotFound
"""
_STALE_METADATA: Final = frozenset({3, 5, 6, 9, 13, 56, 72, 74, 75, 80, 83, 84, 100, 103})
_RETRIABLE: Final = frozenset({7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 78, 88, 89, 106, 122, 123})
_AUTHORIZATION: Final = frozenset({29, 30, 31, 53, 65})


def _bases(code: int) -> tuple[type[KafkaError], ...]:
    if code in _AUTHORIZATION:
        return (AuthorizationError,)
    if code in _STALE_METADATA:
        return InvalidMetadataError, BrokerResponseError
    return (RetriableError, BrokerResponseError) if code in _RETRIABLE else (BrokerResponseError,)


def _make_classes() -> dict[int, type[BrokerResponseError]]:
    """Put a class for each name into this module; return those with codes."""
    place = {"__module__": __name__}

    def make(name: str, *bases: type, **fields: Any) -> Any:
        globals()[name] = made = _or_the_original(type(name, bases, {**place, **fields}))
        return made

    for name, base in _LOCAL.items():
        make(name, base)
    by_code: dict[int, type[BrokerResponseError]] = {}
    for code, stem in enumerate(_STEMS.split(), -1):
        message = "".join(f"_{c}" if c.isupper() else c.upper() for c in stem).lstrip("_")
        by_code[code] = make(f"{stem}Error", *_bases(code), errno=code, message=message)
    protocol: Any = globals()["KafkaProtocolError"]
    make("CorrelationIdError", RetriableError, protocol)
    make("InvalidReceiveError", protocol)
    globals()["CorruptRecordException"] = by_code[2]
    make("IncompatibleBrokerVersion", by_code[35])
    return by_code


kafka_errors: Final = _make_classes()


def __getattr__(name: str) -> Any:
    return original(_ORIGINAL, name, __name__)


def for_code(code: int) -> type[BrokerResponseError]:
    """Return the class of an error code."""
    known = kafka_errors.get(code)
    return known or type("UnrecognizedBrokerError", (kafka_errors[-1],), {"errno": code, "__module__": __name__})


_OURS: Final[translation.Kinds] = (
    (ours.RecordTooLargeError, kafka_errors[10]),
    (ours.ConfigError, OptionError),
    (ours.ArgumentTypeError, TypeError),
    (ours.InvalidRecordError, ValueError),
    (ours.SerializationError, ValueError),
    (ours.BootstrapError, NoBrokersAvailable),
    (ours.ConnectionLostError, KafkaConnectionError),
    (ours.AuthenticationError, kafka_errors[58]),
    (ours.AuthorizationError, AuthorizationError),
    (ours.UnsupportedVersionError, kafka_errors[35]),
    (ours.CorruptDataError, kafka_errors[2]),
    (ours.TransactionAbortedError, TransactionAbortedError),
    (ours.ProducerFencedError, kafka_errors[90]),
    (ours.BufferFullError, KafkaTimeoutError),
    (ours.DeliveryTimeoutError, KafkaTimeoutError),
    (ours.MetadataTimeoutError, KafkaTimeoutError),
    (ours.RequestTimedOutError, KafkaTimeoutError),
    (ours.TransactionTimeoutError, KafkaTimeoutError),
    (ours.TransactionAbortableError, kafka_errors[120]),
    (ours.ProducerClosedError, IllegalStateError),
    (ours.ForkedProducerError, IllegalStateError),
    (ours.IllegalStateError, IllegalStateError),
    (TimeoutError, KafkaTimeoutError),
    (Exception, KafkaError),
)


def translate(error: BaseException) -> BaseException:
    """Return what kafka-python raises where kafkaprod raises `error`, which becomes its cause."""
    return translation.translate(error, (), for_code, _OURS)
