"""Who may do what: the decisions of the ACLs, and the filters."""

from __future__ import annotations

import random

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl, AclFilter, Acls, check_new
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.broker.settings_in_memory import SettingsInMemory

TOPIC = acls.TOPIC
ANN = "User:ann"


def entry(
    operation: int = acls.READ,
    *,
    name: str = "orders",
    pattern: int = acls.LITERAL,
    principal: str = ANN,
    host: str = "*",
    permission: int = acls.ALLOW,
    resource_type: int = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def make(*entries: Acl, allows_if_none: bool = True) -> Acls:
    made = Acls(SettingsInMemory(), ["User:root"], allows_if_none=allows_if_none)
    made.add(entries)
    return made


@pytest.mark.parametrize(
    ("entries", "operation", "name", "expected"),
    [
        ([], acls.WRITE, "orders", True),
        ([entry()], acls.READ, "orders", True),
        ([entry()], acls.WRITE, "orders", False),
        ([entry()], acls.READ, "orders-2", True),  # no entry for that topic
        ([entry(pattern=acls.PREFIXED)], acls.READ, "orders-2", True),
        ([entry(pattern=acls.PREFIXED)], acls.WRITE, "orders-2", False),
        ([entry(name="*")], acls.READ, "anything", True),
        ([entry(name="*")], acls.WRITE, "anything", False),
        ([entry(principal="User:bob")], acls.READ, "orders", False),
        ([entry(principal="User:*")], acls.READ, "orders", True),
        ([entry(host="10.0.0.1")], acls.READ, "orders", False),
        ([entry(host="127.0.0.1")], acls.READ, "orders", True),
        ([entry(acls.ALL)], acls.DELETE, "orders", True),
        ([entry(acls.ALL), entry(acls.WRITE, permission=acls.DENY)], acls.WRITE, "orders", False),
        ([entry(acls.ALL), entry(acls.ALL, name="*", permission=acls.DENY)], acls.READ, "orders", False),
        ([entry(acls.READ)], acls.DESCRIBE, "orders", True),
        ([entry(acls.ALTER_CONFIGS)], acls.DESCRIBE_CONFIGS, "orders", True),
        ([entry(acls.DESCRIBE)], acls.READ, "orders", False),
        ([entry(acls.DESCRIBE), entry(acls.READ, permission=acls.DENY)], acls.DESCRIBE, "orders", True),
        ([entry(resource_type=acls.GROUP)], acls.WRITE, "orders", True),
    ],
)
def test_decisions_are_those_of_kafka(entries: list[Acl], operation: int, name: str, expected: bool) -> None:
    made = make(*entries)
    assert made.is_allowed(ANN, "127.0.0.1", operation, TOPIC, name) is expected
    assert made.is_allowed("User:root", "127.0.0.1", operation, TOPIC, name)


def test_without_entries_the_default_decides() -> None:
    assert make().is_open
    closed = make(allows_if_none=False)
    assert not closed.is_open
    assert not closed.is_allowed(ANN, "h", acls.READ, TOPIC, "orders")


def test_entries_are_kept_and_not_doubled() -> None:
    made = make(entry(), entry())
    made.add([entry(), entry(acls.WRITE)])
    everything = AclFilter(acls.ANY, None, acls.ANY, None, None, acls.ANY, acls.ANY)
    assert made.find(everything) == [entry(), entry(acls.WRITE)]
    made.remove([entry()])
    assert made.find(everything) == [entry(acls.WRITE)]


def test_more_entries_than_one_request_may_change_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MAX_CHANGES_OF_REQUEST", 3)
    entries = [entry(acls.READ, name=f"t{number}") for number in range(4)]
    kept = make()
    with pytest.raises(
        RequestRefusedError, match="4 entries are more than the 3 that one request may change"
    ) as caught:
        kept.check_addition(entries)
    assert caught.value.code == ErrorCode.POLICY_VIOLATION
    make(entries[0]).check_addition((*entries, *entries))  # three new ones
    acls.check_removal(entries[1:])
    with pytest.raises(RequestRefusedError, match="send several"):
        acls.check_removal(entries)


def test_write_to_some_topic_is_enough_for_an_idempotent_producer() -> None:
    made = make(entry(acls.WRITE), allows_if_none=False)
    assert made.is_allowed_for_any(ANN, "h", acls.WRITE, TOPIC)
    assert not made.is_allowed_for_any("User:bob", "h", acls.WRITE, TOPIC)
    made.add([entry(acls.WRITE, name="*", permission=acls.DENY)])
    assert not made.is_allowed_for_any(ANN, "h", acls.WRITE, TOPIC)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (acls.ANY, None, ["orders", "ord", "*"]),
        (acls.ANY, "ord", ["ord"]),
        (acls.MATCH, "orders", ["orders", "ord", "*"]),
        (acls.MATCH, "payments", ["*"]),
        (acls.LITERAL, "ord", []),
        (acls.PREFIXED, None, ["ord"]),
        (acls.LITERAL, "*", ["*"]),
    ],
)
def test_filters_find_by_pattern(pattern: int, name: str | None, expected: list[str]) -> None:
    made = make(entry(), entry(name="ord", pattern=acls.PREFIXED), entry(name="*"))
    found = made.find(AclFilter(TOPIC, name, pattern, None, None, acls.ANY, acls.ANY))
    assert [acl.name for acl in found] == expected


def test_entries_are_found_as_a_look_at_each_would_find_them() -> None:
    generator = random.Random(7)
    names = ["a", "ab", "abc", "b", "bc", "*"]
    entries = {
        entry(
            generator.choice([acls.READ, acls.WRITE, acls.ALL]),
            name=generator.choice(names),
            pattern=generator.choice([acls.LITERAL, acls.PREFIXED]),
            permission=generator.choice([acls.ALLOW, acls.ALLOW, acls.DENY]),
            resource_type=generator.choice([TOPIC, acls.GROUP]),
        )
        for _ in range(60)
    }
    made = make(*entries)
    for resource_type in (acls.ANY, TOPIC, acls.GROUP):
        for pattern in (acls.ANY, acls.MATCH, acls.LITERAL, acls.PREFIXED):
            for name in (None, *names, "abcd", "z"):
                wanted = AclFilter(resource_type, name, pattern, None, None, acls.ANY, acls.ANY)
                assert sorted(made.find(wanted)) == sorted(filter(wanted.matches, entries)), wanted


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (entry(resource_type=acls.ANY), ErrorCode.INVALID_REQUEST),
        (entry(pattern=acls.MATCH), ErrorCode.INVALID_REQUEST),
        (entry(acls.ANY), ErrorCode.INVALID_REQUEST),
        (entry(permission=acls.ANY), ErrorCode.INVALID_REQUEST),
        (entry(name=""), ErrorCode.INVALID_REQUEST),
        (entry(host=""), ErrorCode.INVALID_REQUEST),
        (entry(resource_type=acls.CLUSTER, name="mine"), ErrorCode.INVALID_REQUEST),
        (entry(principal="ann"), ErrorCode.INVALID_PRINCIPAL_TYPE),
    ],
)
def test_entries_that_mean_nothing_are_refused(wrong: Acl, expected: ErrorCode) -> None:
    with pytest.raises(RequestRefusedError) as error:
        check_new(wrong)
    assert error.value.code == expected
