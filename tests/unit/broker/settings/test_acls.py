"""Who may do what: the decisions of the ACLs, and the filters."""

from __future__ import annotations

import random
from ipaddress import ip_address, ip_network

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl, AclFilter, Acls, check_new
from kafkaprod.broker.settings.prefixes import Prefixes
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


@pytest.mark.parametrize(
    ("network", "host", "is_in"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.9.9.9/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("0.0.0.0/0", "10.1.2.3", True),
        ("0.0.0.0/0", "::1", False),
        ("fe80::/10", "fe80::1", True),
        ("127.0.0.1/32", "127.0.0.1", True),
        ("127.0.0.1/32", "a host", False),
    ],
)
def test_a_network_stands_for_its_addresses(network: str, host: str, is_in: bool) -> None:
    allowing = make(entry(host=network), allows_if_none=False)
    assert allowing.is_allowed(ANN, host, acls.READ, TOPIC, "orders") is is_in
    assert allowing.is_allowed_for_any(ANN, host, acls.READ, TOPIC) is is_in
    denying = make(entry(), entry(host=network, permission=acls.DENY))
    assert denying.is_allowed(ANN, host, acls.READ, TOPIC, "orders") is not is_in


@pytest.mark.parametrize("resource_type", [acls.USER, acls.DELEGATION_TOKEN])
def test_tokens_of_others_need_an_allow_whatever_the_default(resource_type: int) -> None:
    opened = make(entry())
    for operation in (acls.CREATE_TOKENS, acls.DESCRIBE_TOKENS, acls.DESCRIBE):
        assert not opened.is_allowed(ANN, "h", operation, resource_type, "User:root")
        assert make().is_allowed(ANN, "h", operation, resource_type, "User:root")  # as Kafka without an authorizer
    opened.add([entry(acls.ALL, resource_type=resource_type, name="User:root")])
    assert opened.is_allowed(ANN, "h", acls.CREATE_TOKENS, resource_type, "User:root")


def test_decisions_are_those_of_a_look_at_each_entry() -> None:
    generator = random.Random(11)
    names = ["a", "ab", "abc", "abd", "b", "bc", "*", "abcdef", "zz"]
    principals, hosts = [ANN, "User:bob", "User:*"], ["*", "10.0.0.1", "10.0.0.0/24", "10.0.0.0/8"]
    for _ in range(60):
        entries = {
            entry(
                generator.choice([acls.READ, acls.WRITE, acls.DESCRIBE, acls.ALL]),
                name=generator.choice(names),
                pattern=generator.choice([acls.LITERAL, acls.PREFIXED, acls.PREFIXED]),
                principal=generator.choice(principals),
                host=generator.choice(hosts),
                permission=generator.choice([acls.ALLOW, acls.ALLOW, acls.DENY]),
                resource_type=generator.choice([TOPIC, acls.GROUP]),
            )
            for _ in range(generator.randrange(1, 60))
        }
        made = make(*entries)
        for name in (*names, "abcx", "", "abcdefg", "zzz"):
            for host in ("10.0.0.1", "10.9.0.1", "11.0.0.1"):
                for operation in (acls.READ, acls.WRITE, acls.DESCRIBE):
                    wanted = decision(entries, ANN, host, operation, name)
                    assert made.is_allowed(ANN, host, operation, TOPIC, name) is wanted, (name, host, operation)


def decision(entries: set[Acl], principal: str, host: str, operation: int, name: str) -> bool:
    """What StandardAuthorizer decides, by a look at each entry."""
    covering = [acl for acl in entries if acl.resource_type == TOPIC and acls.covers(acl, name)]
    mine = [acl for acl in covering if acl.principal in (principal, "User:*") and is_for(acl.host, host)]
    implying = {acls.DESCRIBE: {acls.READ, acls.WRITE}}.get(operation, set())
    if any(acl.permission == acls.DENY and acl.operation in (operation, acls.ALL) for acl in mine):
        return False
    allowing = {operation, acls.ALL, *implying}
    return not covering or any(acl.permission == acls.ALLOW and acl.operation in allowing for acl in mine)


def is_for(host: str, client: str) -> bool:
    return host in ("*", client) or ("/" in host and ip_address(client) in ip_network(host))


def test_the_longest_prefixes_come_first() -> None:
    generator = random.Random(3)
    for _ in range(200):
        texts = {"".join(generator.choices("ab", k=generator.randrange(1, 6))) for _ in range(generator.randrange(12))}
        name = "".join(generator.choices("ab", k=generator.randrange(7)))
        found = sorted(filter(name.startswith, texts), key=len, reverse=True)
        assert list(Prefixes(texts).all_of(name)) == found
        assert Prefixes(texts).longest(name) == (found[0] if found else None)


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
        (entry(host="a/b"), ErrorCode.INVALID_REQUEST),
        (entry(host="127.0.0.1/33"), ErrorCode.INVALID_REQUEST),
        (entry(host="::/129"), ErrorCode.INVALID_REQUEST),
        (entry(host="10.0.0.0/"), ErrorCode.INVALID_REQUEST),
        (entry(name="x" * 250), ErrorCode.INVALID_REQUEST),
        (entry(name="x" * 250, pattern=acls.PREFIXED), ErrorCode.INVALID_REQUEST),
        (entry(name="x" * 1_025, resource_type=acls.GROUP), ErrorCode.INVALID_REQUEST),
        (entry(principal="User:" + "x" * 1_020), ErrorCode.INVALID_REQUEST),
        (entry(host="x" * 1_025), ErrorCode.INVALID_REQUEST),
    ],
)
def test_entries_that_mean_nothing_are_refused(wrong: Acl, expected: ErrorCode) -> None:
    with pytest.raises(RequestRefusedError) as error:
        check_new(wrong)
    assert error.value.code == expected
