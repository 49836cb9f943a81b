"""The error codes of brokers, in one table. Source: Apache Kafka 4.4, `Errors`; protocol guide "Error Codes".

A code that is not in the table (a newer broker's) is kept: its name is UNKNOWN_<code>, it is not retried, and the error
raised for it has the number. It is never replaced by another code.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from kafkaprod.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicNotFoundError,
    TransactionAbortableError,
    UnsupportedVersionError,
    printable,
)


class Retry(Enum):
    """Whether the same request may succeed later."""

    NO = "no"
    YES = "yes"
    AFTER_REFRESH = "after refresh"  # the metadata is stale: refresh it first


_MAX_MESSAGE = 1_000  # characters of a broker's text
_NO, _YES, _REFRESH = Retry.NO, Retry.YES, Retry.AFTER_REFRESH


class ErrorCode(IntEnum):
    """A code, its retry rule, its meaning, and the class raised for it.

    Attributes:
        retry: Whether the same request may succeed later.
        text: The meaning in a few words.
        error_class: The class of `error_for`.
    """

    retry: Retry
    text: str
    error_class: type[KafkaError]

    def __new__(cls, code: int, retry: Retry, text: str, error_class: type[KafkaError] = BrokerError) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retry = retry
        member.text = text
        member.error_class = error_class
        return member

    UNKNOWN_SERVER_ERROR = -1, _NO, "the broker failed and has no code for it; see its log"
    NONE = 0, _NO, "no error"
    OFFSET_OUT_OF_RANGE = 1, _NO, "the offset is outside of the log"
    CORRUPT_MESSAGE = 2, _YES, "a batch arrived damaged: its checksum or size is wrong"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _REFRESH, "the broker does not host this topic or partition", TopicNotFoundError
    INVALID_FETCH_SIZE = 4, _NO, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, _REFRESH, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, _REFRESH, "the broker is not the partition's leader, or not one of its replicas"
    REQUEST_TIMED_OUT = 7, _YES, "the broker gave up waiting, e.g. for the in-sync replicas"
    BROKER_NOT_AVAILABLE = 8, _NO, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _REFRESH, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, _NO, "the batch exceeds the topic's max.message.bytes", RecordTooLargeError
    STALE_CONTROLLER_EPOCH = 11, _NO, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, _NO, "the metadata of a committed offset is too large"
    NETWORK_EXCEPTION = 13, _REFRESH, "the connection broke before the answer"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _YES, "the coordinator is loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, _YES, "the coordinator is not available"
    NOT_COORDINATOR = 16, _YES, "the broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, _NO, "the topic name is invalid, or the topic may not be written to"
    RECORD_LIST_TOO_LARGE = 18, _NO, "the batch is larger than a log segment (segment.bytes)", RecordTooLargeError
    NOT_ENOUGH_REPLICAS = 19, _YES, "fewer replicas in sync than min.insync.replicas; nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _YES, "written, but to fewer replicas in sync than min.insync.replicas"
    INVALID_REQUIRED_ACKS = 21, _NO, "acks is not -1, 0 or 1"
    ILLEGAL_GENERATION = 22, _NO, "the group has a newer generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, _NO, "the group has no assignor or protocol type in common with the member"
    INVALID_GROUP_ID = 24, _NO, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, _NO, "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, _NO, "the session timeout is outside of the broker's limits"
    REBALANCE_IN_PROGRESS = 27, _NO, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _NO, "the committed offset is too large to store"
    TOPIC_AUTHORIZATION_FAILED = 29, _NO, "the principal may not use this topic", AuthorizationError
    GROUP_AUTHORIZATION_FAILED = 30, _NO, "the principal may not use this group", AuthorizationError
    CLUSTER_AUTHORIZATION_FAILED = 31, _NO, "the principal may not do this in the cluster", AuthorizationError
    INVALID_TIMESTAMP = 32, _NO, "a record's timestamp is outside of what the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, _NO, "the broker does not offer this SASL mechanism", AuthenticationError
    ILLEGAL_SASL_STATE = 34, _NO, "the request does not fit the state of the login", AuthenticationError
    UNSUPPORTED_VERSION = 35, _NO, "the broker does not know this version of the request", UnsupportedVersionError
    TOPIC_ALREADY_EXISTS = 36, _NO, "the topic exists already"
    INVALID_PARTITIONS = 37, _NO, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, _NO, "the replication factor is invalid, or larger than the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _NO, "the assignment of replicas is invalid"
    INVALID_CONFIG = 40, _NO, "an option is invalid"
    NOT_CONTROLLER = 41, _YES, "the broker is not the controller"
    INVALID_REQUEST = 42, _NO, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _NO, "the topic's record format is too old for this"
    POLICY_VIOLATION = 44, _NO, "a policy of the broker forbids it"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _NO, "a batch before this one is missing in the log", OutOfOrderSequenceError
    DUPLICATE_SEQUENCE_NUMBER = 46, _NO, "the batch is in the log already"
    INVALID_PRODUCER_EPOCH = 47, _NO, "the producer's epoch is older than the one in the log"
    INVALID_TXN_STATE = 48, _NO, "the transaction is not in a state that allows this", InvalidTxnStateError
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        _NO,
        "the producer id does not belong to the transactional id",
        InvalidProducerIdMappingError,
    )
    INVALID_TRANSACTION_TIMEOUT = 50, _NO, "the transaction timeout exceeds the broker's transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, _YES, "the previous transaction of this id is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, _NO, "a newer transaction coordinator took over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        _NO,
        "the principal may not use this transactional id",
        AuthorizationError,
    )
    SECURITY_DISABLED = 54, _NO, "the broker has no security features enabled"
    OPERATION_NOT_ATTEMPTED = 55, _NO, "not tried, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, _REFRESH, "the broker could not use the disk of this partition"
    LOG_DIR_NOT_FOUND = 57, _NO, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, _NO, "the broker refused the credentials", AuthenticationError
    UNKNOWN_PRODUCER_ID = 59, _NO, "the broker has no batches of this producer any more", OutOfOrderSequenceError
    REASSIGNMENT_IN_PROGRESS = 60, _NO, "a reassignment of partitions is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _NO, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, _NO, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _NO, "the principal does not own the delegation token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _NO, "delegation tokens cannot be requested on this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        _NO,
        "the principal may not use the delegation token",
        AuthorizationError,
    )
    DELEGATION_TOKEN_EXPIRED = 66, _NO, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _NO, "the principal type is not supported"
    NON_EMPTY_GROUP = 68, _NO, "the group has members"
    GROUP_ID_NOT_FOUND = 69, _NO, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, _YES, "the fetch session does not exist"
    INVALID_FETCH_SESSION_EPOCH = 71, _YES, "the epoch of the fetch session is wrong"
    LISTENER_NOT_FOUND = 72, _REFRESH, "the leader has no listener of the name this connection uses"
    TOPIC_DELETION_DISABLED = 73, _NO, "topics cannot be deleted on this cluster"
    FENCED_LEADER_EPOCH = 74, _REFRESH, "the request has an older leader epoch than the broker"
    UNKNOWN_LEADER_EPOCH = 75, _YES, "the request has a newer leader epoch than the broker"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _NO, "the compression is not supported in this version of the request"
    STALE_BROKER_EPOCH = 77, _NO, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, _YES, "the new leader does not know the high watermark yet"
    MEMBER_ID_REQUIRED = 79, _NO, "the group gave out a member id: join again with it"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _REFRESH, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, _NO, "the group is full"
    FENCED_INSTANCE_ID = 82, _NO, "another member uses the same group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _REFRESH, "no replica can become leader"
    ELECTION_NOT_NEEDED = 84, _REFRESH, "the partition needs no election"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _NO, "no reassignment is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _NO, "the group is subscribed to the topic"
    INVALID_RECORD = 87, _NO, "the broker's checks refused a record"
    UNSTABLE_OFFSET_COMMIT = 88, _YES, "offsets of a transaction in progress are not committed yet"
    THROTTLING_QUOTA_EXCEEDED = 89, _YES, "the quota is used up"
    PRODUCER_FENCED = 90, _NO, "a newer producer with the same transactional id took over", ProducerFencedError
    RESOURCE_NOT_FOUND = 91, _NO, "the resource does not exist"
    DUPLICATE_RESOURCE = 92, _NO, "the resource exists already, or is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, _NO, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, _NO, "the broker is not a voter of this quorum"
    INVALID_UPDATE_VERSION = 95, _NO, "the update carries a wrong version"
    FEATURE_UPDATE_FAILED = 96, _NO, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _NO, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, _NO, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, _NO, "the position is outside of the snapshot"
    UNKNOWN_TOPIC_ID = 100, _REFRESH, "the broker does not know this topic id", TopicNotFoundError
    DUPLICATE_BROKER_REGISTRATION = 101, _NO, "a broker with this id is registered already"
    BROKER_ID_NOT_REGISTERED = 102, _NO, "no broker with this id is registered"
    INCONSISTENT_TOPIC_ID = 103, _REFRESH, "the log belongs to another topic id"
    INCONSISTENT_CLUSTER_ID = 104, _NO, "the request is for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _NO, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _YES, "the fetch session mixes topic ids and names"
    INELIGIBLE_REPLICA = 107, _NO, "the replica may not join the in-sync replicas"
    NEW_LEADER_ELECTED = 108, _NO, "the partition has a new leader meanwhile"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _NO, "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = 110, _NO, "the coordinator fenced the member: join again"
    UNRELEASED_INSTANCE_ID = 111, _NO, "another member still holds the instance id"
    UNSUPPORTED_ASSIGNOR = 112, _NO, "the group does not support the assignor"
    STALE_MEMBER_EPOCH = 113, _NO, "the member epoch is out of date: heartbeat first"
    MISMATCHED_ENDPOINT_TYPE = 114, _NO, "the request went to the wrong type of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _NO, "the type of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, _NO, "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, _NO, "the telemetry subscription has changed: request it again"
    TELEMETRY_TOO_LARGE = 118, _NO, "the metrics exceed the broker's limit"
    INVALID_REGISTRATION = 119, _NO, "the registration of the broker is invalid"
    TRANSACTION_ABORTABLE = 120, _NO, "the transaction cannot continue: abort it", TransactionAbortableError
    INVALID_RECORD_STATE = 121, _NO, "the record is in the wrong state to be acknowledged"
    SHARE_SESSION_NOT_FOUND = 122, _YES, "the share session does not exist"
    INVALID_SHARE_SESSION_EPOCH = 123, _YES, "the epoch of the share session is wrong"
    FENCED_STATE_EPOCH = 124, _NO, "the share coordinator has a newer state epoch"
    INVALID_VOTER_KEY = 125, _NO, "the voter's key is wrong"
    DUPLICATE_VOTER = 126, _NO, "the voter is in the quorum already"
    VOTER_NOT_FOUND = 127, _NO, "the voter is not in the quorum"
    INVALID_REGULAR_EXPRESSION = 128, _NO, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, _NO, "the client's view of the cluster is useless: bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, _NO, "the streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _NO, "the epoch of the streams topology is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, _NO, "the epoch of the streams topology is out of date"
    SHARE_SESSION_LIMIT_REACHED = 133, _YES, "the broker has no room for another share session"
    GROUP_DELETION_FAILED = 134, _NO, "the group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, _NO, "the description of the streams topology was not stored"
    CONTROLLER_ID_NOT_REGISTERED = 136, _NO, "no controller with this id is registered"


class ErrorDescription(NamedTuple):
    """The properties of a code.

    Attributes:
        name: Kafka's name, UNKNOWN_<code> if the code is not in the table.
        retriable: Whether the same request may succeed later.
        needs_metadata: Whether the client's metadata is stale.
        text: The meaning in a few words.
        error_class: The class of `error_for`.
    """

    code: int
    name: str
    retriable: bool
    needs_metadata: bool
    text: str
    error_class: type[KafkaError]

    def __str__(self) -> str:
        return f"{self.name} ({self.code}): {self.text}"


_DESCRIPTIONS: Final[dict[int, ErrorDescription]] = {
    int(row): ErrorDescription(
        int(row), row.name, row.retry is not Retry.NO, row.retry is Retry.AFTER_REFRESH, row.text, row.error_class
    )
    for row in ErrorCode
}


def describe(code: int) -> ErrorDescription:
    """Return the properties of a code; as text "LEADER_NOT_AVAILABLE (5): the partition has no leader ..."."""
    known = _DESCRIPTIONS.get(code)
    if known is not None:
        return known
    return ErrorDescription(code, f"UNKNOWN_{code}", False, False, "this client does not know the code", BrokerError)


def error_for(
    code: int, message: str | None = None, *, about: str = "", advice: str = "", **context: Any
) -> KafkaError:
    """Make the error to raise for a code in an answer.

    Args:
        code: Any code but 0.
        message: The broker's own text, if it sent one.
        about: What was refused, in our words.
        advice: What to do about it, in our words.
        context: Any of topic, partition, node, api, correlation_id.

    Returns:
        The class of the table, BrokerError for a code that is not in it. `retriable` and `needs_metadata` are those of
        the code. `code` and `name` are attributes of a BrokerError and in the context of any other.

    Raises:
        ValueError: The code is 0, which is no error.
    """
    if code == ErrorCode.NONE:
        raise ValueError("the code is NONE, which is no error")
    description = describe(code)
    text = _message(description, message, context)
    text = f"{about}: {text}" if about else text
    text = f"{text}: {advice}" if advice else text
    error = description.error_class(text, code=code, name=description.name, **context)
    error.retriable = description.retriable
    error.needs_metadata = description.needs_metadata
    return error


def _message(description: ErrorDescription, message: str | None, context: dict[str, Any]) -> str:
    what = f"{description}; the broker says: {printable(message, _MAX_MESSAGE)}" if message else str(description)
    if "topic" not in context:
        return what
    partition = f"[{context['partition']}]" if "partition" in context else ""
    return f"{context['topic']}{partition}: {what}"
