"""The table of error codes against another client's, and the errors made from it."""

from __future__ import annotations

import kafka.errors
import pytest

from kafkaprod.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    DeliveryTimeoutError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TopicNotFoundError,
    TransactionAbortableError,
    UnsupportedVersionError,
    broker_code,
)
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for


def test_the_table_has_every_code_once() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))
    assert len({code.name for code in ErrorCode}) == len({code.text for code in ErrorCode}) == 138


# Kafka 4.4, `Errors`: codes whose exception is a RetriableException, and of those the InvalidMetadataExceptions.
RETRIABLE = {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89}
RETRIABLE |= {100, 103, 106, 122, 123, 133}
NEEDS_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}


def test_the_flags_are_those_of_kafka() -> None:
    assert {int(code) for code in ErrorCode if describe(code).retriable} == RETRIABLE
    assert {int(code) for code in ErrorCode if describe(code).needs_metadata} == NEEDS_METADATA


def test_another_client_retries_the_same_codes() -> None:
    peers = {error.errno: error for error in vars(kafka.errors).values() if hasattr(error, "errno")}
    known = [code for code in ErrorCode if code in peers]
    assert len(known) > 80
    differing = {code.name for code in known if describe(code).retriable != peers[code].retriable}

    assert differing == {"CORRUPT_MESSAGE"}  # Kafka's CorruptRecordException is retriable, kafka-python's is not


def test_a_known_code_is_described() -> None:
    assert str(describe(5)) == "LEADER_NOT_AVAILABLE (5): the partition has no leader at the moment"
    assert describe(5).name == "LEADER_NOT_AVAILABLE"


def test_an_unknown_code_is_kept_and_not_retried() -> None:
    error = error_for(4711, topic="orders", partition=3)

    assert isinstance(error, BrokerError)
    assert (error.code, error.name) == (4711, "UNKNOWN_4711")
    assert (error.retriable, error.needs_metadata) == (False, False)
    assert str(error) == "orders[3]: UNKNOWN_4711 (4711): this client does not know the code"
    assert error.context == {"topic": "orders", "partition": 3}


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (3, TopicNotFoundError),
        (100, TopicNotFoundError),
        (29, AuthorizationError),
        (53, AuthorizationError),
        (58, AuthenticationError),
        (35, UnsupportedVersionError),
        (45, OutOfOrderSequenceError),
        (90, ProducerFencedError),
        (120, TransactionAbortableError),
        (2, BrokerError),
    ],
)
def test_a_code_becomes_the_class_a_caller_can_act_on(code: int, error_class: type[Exception]) -> None:
    assert type(error_for(code)) is error_class


def test_the_flags_of_the_code_are_on_the_error() -> None:
    assert (error_for(6).retriable, error_for(6).needs_metadata) == (True, True)
    assert (error_for(7).retriable, error_for(7).needs_metadata) == (True, False)
    assert (error_for(87).retriable, error_for(87).needs_metadata) == (False, False)


def test_classes_without_a_code_carry_it_in_their_context() -> None:
    assert error_for(29, topic="t").context == {"code": 29, "name": "TOPIC_AUTHORIZATION_FAILED", "topic": "t"}


def test_the_code_is_found_whatever_the_class() -> None:
    assert [broker_code(error_for(code)) for code in (6, 10, 29, 87)] == [6, 10, 29, 87]
    assert broker_code(DeliveryTimeoutError("late")) is None
    assert broker_code(ValueError("not ours")) is None


def test_the_brokers_own_words_are_kept() -> None:
    assert str(error_for(44, "no topic over 10 partitions")) == (
        "POLICY_VIOLATION (44): a policy of the broker forbids it; the broker says: no topic over 10 partitions"
    )


def test_success_is_not_an_error() -> None:
    with pytest.raises(ValueError, match="NONE"):
        error_for(0)


def test_our_words_are_not_put_into_the_brokers_mouth() -> None:
    error = error_for(44, "no topic over 10 partitions", about="options of 't'", advice="take fewer")
    assert str(error) == (
        "options of 't': POLICY_VIOLATION (44): a policy of the broker forbids it; the broker says: "
        "no topic over 10 partitions: take fewer"
    )
    assert "the broker says" not in str(error_for(44, about="options of 't'"))
