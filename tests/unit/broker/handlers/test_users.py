"""SCRAM credentials, quotas and ACLs that clients set."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest

from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.controller.disk_log import METADATA_PARTITION
from kafkaprod.broker.handlers import alter_client_quotas as quotas_handler
from kafkaprod.broker.handlers import alter_user_scram_credentials
from kafkaprod.broker.handlers import create_acls as create_handler
from kafkaprod.broker.handlers import delete_acls as delete_handler
from kafkaprod.broker.settings import acls
from kafkaprod.errors import AuthenticationError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import alter_client_quotas as alter_quotas
from kafkaprod.protocol.messages import alter_user_scram_credentials as alter_scram
from kafkaprod.protocol.messages import create_acls, delete_acls
from kafkaprod.protocol.messages import describe_client_quotas as describe_quotas
from kafkaprod.protocol.messages import describe_user_scram_credentials as describe_scram
from kafkaprod.security.scram import ScramMechanism
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import split_batches

SHA_256, SHA_512 = 1, 2


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, sasl_users={"ann": "first"})


def upsertion(user: str, mechanism: int, password: str, iterations: int = 4096) -> alter_scram.ScramCredentialUpsertion:
    name = "sha256" if mechanism == SHA_256 else "sha512"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salt", iterations)
    return alter_scram.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def alter(
    box: BrokerWithoutSockets,
    *upsertions: alter_scram.ScramCredentialUpsertion,
    deletions: tuple[tuple[str, int], ...] = (),
) -> dict[str, int]:
    request = alter_scram.AlterUserScramCredentialsRequest(
        upsertions=list(upsertions),
        deletions=[alter_scram.ScramCredentialDeletion(name=name, mechanism=number) for name, number in deletions],
    )
    answer = box.ask(request, alter_scram.AlterUserScramCredentialsResponse, 0)
    return {result.user: result.error_code for result in answer.results}


def described(box: BrokerWithoutSockets, *names: str) -> dict[str, object]:
    users = [describe_scram.UserName(name=name) for name in names]
    request = describe_scram.DescribeUserScramCredentialsRequest(users=users)
    answer = box.ask(request, describe_scram.DescribeUserScramCredentialsResponse, 0)
    return {
        result.user: result.error_code or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


def can_log_in(box: BrokerWithoutSockets, mechanism: str, user: str, password: str) -> bool:
    login = Login(box.broker.credentials)
    assert login.begin(mechanism)
    client = ScramMechanism(mechanism, user, password)
    try:
        answer = client.step(login.step(client.first()))
        assert answer is not None
        client.step(login.step(answer))
    except AuthenticationError:
        return False
    return login.user == user


def test_a_user_has_a_password_for_each_mechanism_and_keeps_it(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, sasl_users={"ann": "first"})
    assert alter(box, upsertion("ann", SHA_512, "second", 8192), upsertion("bob", SHA_256, "third")) == {
        "ann": 0,
        "bob": 0,
    }
    for again in range(2):
        assert described(box) == {"ann": [(SHA_256, 4096), (SHA_512, 8192)], "bob": [(SHA_256, 4096)]}, again
        assert can_log_in(box, "SCRAM-SHA-256", "ann", "first")
        assert can_log_in(box, "SCRAM-SHA-512", "ann", "second")
        assert not can_log_in(box, "SCRAM-SHA-512", "ann", "first")
        assert can_log_in(box, "SCRAM-SHA-256", "bob", "third")
        assert not can_log_in(box, "SCRAM-SHA-512", "bob", "third")
        box.broker.close()
        box = BrokerWithoutSockets(tmp_path, sasl_users={"ann": "first"})
    assert alter(box, deletions=(("ann", SHA_256),)) == {"ann": 0}
    assert not can_log_in(box, "SCRAM-SHA-256", "ann", "first")
    assert described(box, "ann", "bob", "carl") == {
        "ann": [(SHA_512, 8192)],
        "bob": [(SHA_256, 4096)],
        "carl": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert described(box, "bob", "bob") == {"bob": ErrorCode.DUPLICATE_RESOURCE}


@pytest.mark.parametrize(
    ("user", "mechanism", "iterations", "expected"),
    [
        ("", SHA_256, 4096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("bob", 3, 4096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("bob", SHA_256, 4095, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("bob", SHA_256, 16385, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_bad_credentials_are_refused(
    box: BrokerWithoutSockets, user: str, mechanism: int, iterations: int, expected: ErrorCode
) -> None:
    assert alter(box, upsertion(user, mechanism, "x", iterations)) == {user: expected}
    assert described(box) == {"ann": [(SHA_256, 4096), (SHA_512, 4096)]}


def test_changes_of_a_user_are_all_made_or_none(box: BrokerWithoutSockets) -> None:
    assert alter(box, upsertion("bob", SHA_256, "x"), deletions=(("bob", SHA_512),)) == {
        "bob": ErrorCode.RESOURCE_NOT_FOUND
    }
    twice = upsertion("bob", SHA_256, "x")
    assert alter(box, twice, twice) == {"bob": ErrorCode.DUPLICATE_RESOURCE}
    assert "bob" not in described(box)


def metadata_batches(box: BrokerWithoutSockets) -> int:
    """How many changes the metadata log has seen."""
    log = box.broker.log_dirs.partitions[METADATA_PARTITION]
    records = log.read(0, 1 << 20, log.log_end_offset).records
    assert records is not None
    return len(split_batches(records.read()))


def test_all_changes_of_a_request_are_one_of_the_metadata(box: BrokerWithoutSockets) -> None:
    """With one for each user, a request of many would hold up everybody else for minutes."""
    before = metadata_batches(box)
    assert set(alter(box, *(upsertion(f"u{number}", SHA_256, "x") for number in range(50))).values()) == {0}
    assert metadata_batches(box) == before + 1
    entries = [quota_entry({"user": f"u{number}"}, producer_byte_rate=1.0) for number in range(50)]
    request = alter_quotas.AlterClientQuotasRequest(entries=[*entries, quota_entry({}, producer_byte_rate=1.0)])
    answer = box.ask(request, alter_quotas.AlterClientQuotasResponse, 1)
    assert [entry.error_code for entry in answer.entries] == [0] * 50 + [ErrorCode.INVALID_REQUEST]
    assert metadata_batches(box) == before + 2
    everything = quotas(box)
    assert isinstance(everything, list)
    assert len(everything) == 50


def test_users_of_a_long_request_are_changed_in_steps(
    box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_user_scram_credentials, "_USERS_OF_STEP", 20)
    before = metadata_batches(box)
    users = [upsertion(f"u{number}", SHA_256, "x") for number in range(50)]
    users[30].iterations = 1
    codes = alter(box, *users)
    assert codes == {f"u{number}": 0 if number != 30 else ErrorCode.UNACCEPTABLE_CREDENTIAL for number in range(50)}
    assert metadata_batches(box) == before + 3
    assert len(described(box)) == 1 + 49


Entity = dict[str, str | None]


def quota_entry(entity: Entity, **values: float | None) -> alter_quotas.EntryData:
    return alter_quotas.EntryData(
        entity=[
            alter_quotas.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[alter_quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def set_quotas(box: BrokerWithoutSockets, entity: Entity, validate_only: bool = False, **values: float | None) -> int:
    request = alter_quotas.AlterClientQuotasRequest(
        entries=[quota_entry(entity, **values)], validate_only=validate_only
    )
    return box.ask(request, alter_quotas.AlterClientQuotasResponse, 1).entries[0].error_code


def quotas(
    box: BrokerWithoutSockets, *filters: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Entity, dict[str, float]]] | int:
    parts = [describe_quotas.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in filters]
    request = describe_quotas.DescribeClientQuotasRequest(components=parts, strict=strict)
    answer = box.ask(request, describe_quotas.DescribeClientQuotasResponse, 1)
    if answer.entries is None:
        return answer.error_code
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {item.key: item.value for item in entry.values},
        )
        for entry in answer.entries
    ]


def test_quotas_are_kept_and_found_by_filters(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path)
    ann: Entity = {"user": "ann"}
    both: Entity = {"user": "ann", "client-id": None}
    assert set_quotas(box, ann, producer_byte_rate=10.0, request_percentage=0.5) == 0
    assert set_quotas(box, both, consumer_byte_rate=7.0) == 0
    assert set_quotas(box, {"ip": "127.0.0.1"}, connection_creation_rate=3.0) == 0
    assert set_quotas(box, {"user": None}, True, producer_byte_rate=1.0) == 0
    box.broker.close()
    box = BrokerWithoutSockets(tmp_path)
    everything = quotas(box)
    assert isinstance(everything, list)
    assert len(everything) == 3
    assert quotas(box, ("user", 0, "ann"), strict=True) == [
        (ann, {"producer_byte_rate": 10.0, "request_percentage": 0.5})
    ]
    assert quotas(box, ("client-id", 1, None)) == [(both, {"consumer_byte_rate": 7.0})]
    assert quotas(box, ("client-id", 2, None), ("user", 2, None)) == [(both, {"consumer_byte_rate": 7.0})]
    assert quotas(box, ("user", 1, None)) == []
    assert set_quotas(box, ann, producer_byte_rate=None, request_percentage=None) == 0
    assert quotas(box, ("user", 0, "ann"), strict=True) == []


@pytest.mark.parametrize(
    ("entity", "values", "expected"),
    [
        ({}, {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST),
        ({"user": ""}, {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST),
        ({"team": "x"}, {"producer_byte_rate": 1.0}, ErrorCode.UNSUPPORTED_VERSION),
        ({"user": "ann", "ip": "::1"}, {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST),
        ({"user": "ann"}, {"no_such_rate": 1.0}, ErrorCode.INVALID_REQUEST),
        ({"user": "ann"}, {"connection_creation_rate": 1.0}, ErrorCode.INVALID_REQUEST),
        ({"user": "ann"}, {"producer_byte_rate": -1.0}, ErrorCode.INVALID_REQUEST),
        ({"user": "ann"}, {"producer_byte_rate": 1.5}, ErrorCode.INVALID_REQUEST),
        ({"user": "ann"}, {"request_percentage": float("nan")}, ErrorCode.INVALID_REQUEST),
        ({"user": "ann"}, {"producer_byte_rate": float("inf")}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_quotas_that_mean_nothing_are_refused(
    box: BrokerWithoutSockets, entity: Entity, values: dict[str, float], expected: ErrorCode
) -> None:
    assert set_quotas(box, entity, False, **values) == expected
    assert quotas(box) == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 5, None)], ErrorCode.INVALID_REQUEST),
        ([("team", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_filters_that_mean_nothing_are_refused(
    box: BrokerWithoutSockets, filters: list[tuple[str, int, str | None]], expected: ErrorCode
) -> None:
    assert quotas(box, *filters) == expected


def acl_filter(name: str | None, resource_type: int = acls.TOPIC) -> delete_acls.DeleteAclsFilter:
    return delete_acls.DeleteAclsFilter(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=acls.LITERAL,
        operation=acls.ANY,
        permission_type=acls.ANY,
    )


def create_entries(box: BrokerWithoutSockets, *names: str) -> list[int]:
    creations = [
        create_acls.AclCreation(
            resource_type=acls.TOPIC,
            resource_name=name,
            resource_pattern_type=acls.LITERAL,
            principal="User:ann",
            host="*",
            operation=acls.READ,
            permission_type=acls.ALLOW,
        )
        for name in names
    ]
    answer = box.ask(create_acls.CreateAclsRequest(creations=creations), create_acls.CreateAclsResponse, 2)
    return [result.error_code for result in answer.results]


def test_entries_of_all_filters_are_deleted_together(box: BrokerWithoutSockets) -> None:
    box.user = "ann"
    assert create_entries(box, "a", "b", "c") == [0, 0, 0]
    before = metadata_batches(box)
    request = delete_acls.DeleteAclsRequest(
        filters=[acl_filter("b"), acl_filter("none"), acl_filter("b", resource_type=99), acl_filter(None)]
    )
    results = box.ask(request, delete_acls.DeleteAclsResponse, 2).filter_results
    assert [(result.error_code, [acl.resource_name for acl in result.matching_acls]) for result in results] == [
        (0, ["b"]),
        (0, []),
        (ErrorCode.INVALID_REQUEST, []),
        (0, ["a", "c"]),  # what another filter has matched is in the answer of that
    ]
    assert metadata_batches(box) == before + 1
    assert box.broker.acls.is_open


def refuse_second_write(box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch) -> None:
    put, calls = box.broker.settings.put, itertools.count(1)

    def put_once(section: str, content: object) -> None:
        if next(calls) == 2:
            raise RequestRefusedError(ErrorCode.REQUEST_TIMED_OUT, "The controller does not answer.")
        put(section, content)

    monkeypatch.setattr(box.broker.settings, "put", put_once)


def delete_entries(box: BrokerWithoutSockets) -> dict[str, int]:
    request = delete_acls.DeleteAclsRequest(filters=[acl_filter("none"), acl_filter(None)])
    results = box.ask(request, delete_acls.DeleteAclsResponse, 2).filter_results
    assert [result.error_code for result in results] == [0, 0]
    return {each.resource_name: each.error_code for result in results for each in result.matching_acls}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for handler in (create_handler, delete_handler):
        monkeypatch.setattr(handler, "CHANGES_OF_STEP", 2)
    monkeypatch.setattr(quotas_handler, "_ENTITIES_OF_STEP", 2)


@pytest.mark.usefixtures("small_steps")
def test_entries_and_quotas_of_a_long_request_are_changed_in_steps(box: BrokerWithoutSockets) -> None:
    """Others come between them, and in a cluster no step holds up its processes for long."""
    box.user = "ann"
    before = metadata_batches(box)
    assert create_entries(box, "", *"abcde") == [ErrorCode.INVALID_REQUEST, 0, 0, 0, 0, 0]
    assert metadata_batches(box) == before + 3
    assert delete_entries(box) == dict.fromkeys("abcde", 0)
    assert metadata_batches(box) == before + 6
    entries = [quota_entry({"user": name}, producer_byte_rate=1.0) for name in "abcde"]
    box.ask(alter_quotas.AlterClientQuotasRequest(entries=entries), alter_quotas.AlterClientQuotasResponse, 1)
    assert metadata_batches(box) == before + 9
    assert isinstance(found := quotas(box), list)
    assert len(found) == 5


@pytest.mark.usefixtures("small_steps")
def test_what_a_failed_step_leaves_is_answered_with_its_error(
    box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ErrorCode.REQUEST_TIMED_OUT
    box.user = "ann"
    with monkeypatch.context() as patch:
        refuse_second_write(box, patch)
        assert create_entries(box, "a", "b", "c", "", "d", "e") == [0, 0, late, ErrorCode.INVALID_REQUEST, late, late]
    assert sorted(acl.name for acl in box.broker.acls.all) == ["a", "b"]
    assert create_entries(box, *"cde") == [0, 0, 0]
    with monkeypatch.context() as patch:
        refuse_second_write(box, patch)
        assert delete_entries(box) == {"a": 0, "b": 0, "c": late, "d": late, "e": late}
    assert sorted(acl.name for acl in box.broker.acls.all) == ["c", "d", "e"]
    with monkeypatch.context() as patch:
        refuse_second_write(box, patch)
        entries = [quota_entry({"user": name} if name else {}, producer_byte_rate=1.0) for name in ("x", "y", "", "z")]
        request = alter_quotas.AlterClientQuotasRequest(entries=entries)
        answer = box.ask(request, alter_quotas.AlterClientQuotasResponse, 1)
        assert [entry.error_code for entry in answer.entries] == [0, 0, ErrorCode.INVALID_REQUEST, late]
    assert isinstance(found := quotas(box), list)
    assert [entity["user"] for entity, _ in found] == ["x", "y"]
