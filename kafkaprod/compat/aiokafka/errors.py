"""aiokafka's `aiokafka.errors`, and what each error of kafkaprod is there.

Where aiokafka is installed, they are its own classes: what catches the errors of its consumers and admin clients
catches those of this producer, and the other way round. Elsewhere they are made of the tables below: their names are
aiokafka's, the codes Kafka's.
"""

from __future__ import annotations

from typing import Any, Final

from kafkaprod import errors as ours
from kafkaprod.compat import translation
from kafkaprod.compat.originals import Kind, original, taken

_ORIGINAL: Final = "aiokafka.errors"


def _or_the_original(ours: Kind) -> Kind:
    """Return aiokafka's class in place of one with its name, where aiokafka has it."""
    return taken(_ORIGINAL, ours)


@_or_the_original
class KafkaError(RuntimeError):
    """Base of all. `retriable`: the call may succeed later; `invalid_metadata`: the metadata is out of date."""

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


@_or_the_original
class IllegalOperation(Exception):  # as in aiokafka, which derives it from no KafkaError
    """The call is not legal in this state."""


@_or_the_original
class IllegalStateError(KafkaError):
    """The call is not legal in this state."""


@_or_the_original
class KafkaConnectionError(KafkaError):
    """No broker can be used, or a connection failed."""

    retriable = True
    invalid_metadata = True


@_or_the_original
class NoBrokersAvailable(KafkaError):
    """No bootstrap server can be used."""

    retriable = True
    invalid_metadata = True


@_or_the_original
class KafkaTimeoutError(KafkaError):
    """Something did not happen in time."""


@_or_the_original
class KafkaConfigurationError(KafkaError):
    """An option has a wrong value."""


class OptionError(KafkaConfigurationError, ValueError):
    """An option has a wrong value or is not offered."""


@_or_the_original
class ProducerClosed(KafkaError):
    """The producer is closed."""


@_or_the_original
class ProducerFenced(KafkaError):
    """Another producer with the same transactional id took over."""

    def __init__(self, msg: str = "There is a newer producer using the same transactional_id") -> None:
        super().__init__(msg)


@_or_the_original
class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


@_or_the_original
class BrokerResponseError(KafkaError):
    """A broker answered an error code."""

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


_LOCAL: Final = """
    AuthenticationMethodNotSupported Cancelled CommitFailedError IllegalArgumentError IncompatibleBrokerVersion
    KafkaProtocolError KafkaUnavailableError MetadataEmptyBrokerList NoOffsetForPartitionError NodeNotReadyError
    QuotaViolationError RecordTooLargeError StaleMetadata TooManyInFlightRequests UnrecognizedBrokerVersion
    UnsupportedCodecError
"""
_LOCAL_RETRIABLE: Final = frozenset(
    {
        "Cancelled",
        "KafkaProtocolError",
        "MetadataEmptyBrokerList",
        "NodeNotReadyError",
        "StaleMetadata",
        "TooManyInFlightRequests",
    }
)

# Names of the codes from -1 to 72.
_NAMES: Final = """
    UnknownError NoError OffsetOutOfRangeError CorruptRecordException UnknownTopicOrPartitionError
    InvalidFetchRequestError LeaderNotAvailableError NotLeaderForPartitionError RequestTimedOutError
    BrokerNotAvailableError ReplicaNotAvailableError MessageSizeTooLargeError StaleControllerEpochError
    OffsetMetadataTooLargeError StaleLeaderEpochCodeError CoordinatorLoadInProgressError
    CoordinatorNotAvailableError NotCoordinatorError InvalidTopicError RecordListTooLargeError NotEnoughReplicasError
    NotEnoughReplicasAfterAppendError InvalidRequiredAcksError IllegalGenerationError InconsistentGroupProtocolError
    InvalidGroupIdError UnknownMemberIdError InvalidSessionTimeoutError RebalanceInProgressError
    InvalidCommitOffsetSizeError TopicAuthorizationFailedError GroupAuthorizationFailedError
    ClusterAuthorizationFailedError InvalidTimestampError UnsupportedSaslMechanismError IllegalSaslStateError
    UnsupportedVersionError TopicAlreadyExistsError InvalidPartitionsError InvalidReplicationFactorError
    InvalidReplicationAssignmentError InvalidConfigurationError NotControllerError InvalidRequestError
    UnsupportedForMessageFormatError PolicyViolationError OutOfOrderSequenceNumber DuplicateSequenceNumber
    InvalidProducerEpoch InvalidTxnState InvalidProducerIdMapping InvalidTransactionTimeout ConcurrentTransactions
    TransactionCoordinatorFenced TransactionalIdAuthorizationFailed SecurityDisabled OperationNotAttempted
    KafkaStorageError LogDirNotFound SaslAuthenticationFailed UnknownProducerId ReassignmentInProgress
    DelegationTokenAuthDisabled DelegationTokenNotFound DelegationTokenOwnerMismatch DelegationTokenRequestNotAllowed
    DelegationTokenAuthorizationFailed DelegationTokenExpired InvalidPrincipalType NonEmptyGroup GroupIdNotFound
    FetchSessionIdNotFound InvalidFetchSessionEpoch ListenerNotFound
"""
_ALIASES: Final = {
    "InvalidMessageError": 2,
    "GroupLoadInProgressError": 14,
    "GroupCoordinatorNotAvailableError": 15,
    "NotCoordinatorForGroupError": 16,
}
_RETRIABLE: Final = frozenset({3, 5, 6, 7, 14, 15, 16, 19, 20, 41, 56})
_STALE_METADATA: Final = frozenset({3, 5, 6, 56})


def _make(name: str, base: type, **fields: Any) -> Any:
    """Put a class into this module: aiokafka's, or one of this name and base."""
    globals()[name] = made = _or_the_original(type(name, (base,), {"__module__": __name__, **fields}))
    return made


def _broker_class(name: str, code: int) -> Any:
    return _make(
        name, BrokerResponseError, errno=code, retriable=code in _RETRIABLE, invalid_metadata=code in _STALE_METADATA
    )


def _make_classes() -> dict[int, type[BrokerResponseError]]:
    """Put a class for each name into this module; return those with codes."""
    for name in _LOCAL.split():
        _make(name, KafkaError, retriable=name in _LOCAL_RETRIABLE)
    _make("CorrelationIdError", globals()["KafkaProtocolError"])
    _make("ConsumerStoppedError", Exception)
    by_code: dict[int, type[BrokerResponseError]] = {}
    for code, name in enumerate(_NAMES.split(), -1):
        by_code[code] = _broker_class(name, code)
    by_code[79] = _broker_class("MemberIdRequired", 79)
    globals().update((name, by_code[code]) for name, code in _ALIASES.items())
    return by_code


kafka_errors: Final = _make_classes()


def __getattr__(name: str) -> Any:
    return original(_ORIGINAL, name, __name__)


def for_code(code: int) -> type[BrokerResponseError]:
    """Return the class of an error code."""
    return kafka_errors.get(code, kafka_errors[-1])


_FENCED: Final = ((ours.ProducerFencedError, ProducerFenced),)
_OURS: Final[translation.Kinds] = (
    (ours.RecordTooLargeError, kafka_errors[10]),
    (ours.ConfigError, OptionError),
    (ours.ArgumentTypeError, TypeError),
    (ours.InvalidRecordError, ValueError),
    (ours.SerializationError, ValueError),
    (ours.BootstrapError, KafkaConnectionError),
    (ours.ConnectionLostError, KafkaConnectionError),
    (ours.AuthenticationError, AuthenticationFailedError),
    (ours.UnsupportedVersionError, kafka_errors[35]),
    (ours.ProducerClosedError, ProducerClosed),
    (ours.IllegalStateError, IllegalOperation),
    (ours.ForkedProducerError, IllegalOperation),
    (TimeoutError, KafkaTimeoutError),
    (Exception, KafkaError),
)


def translate(error: BaseException) -> BaseException:
    """Return what aiokafka raises where kafkaprod raises `error`, which becomes its cause."""
    return translation.translate(error, _FENCED, for_code, _OURS)
