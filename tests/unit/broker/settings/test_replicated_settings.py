"""Options, quotas, credentials and ACLs of a cluster: what brokers change through a controller, and all of them see."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kafkaprod.broker.calls.login import Credentials
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.history import sentences
from kafkaprod.broker.controller.requests import on_request
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.records import TopicRecord, encode
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl, AclFilter, Acls
from kafkaprod.broker.settings.quotas import Change, Quotas
from kafkaprod.broker.settings.replicated_settings import ReplicatedSettings
from kafkaprod.broker.settings.scram_store import ScramStore, keys_of
from kafkaprod.broker.settings.settings import BROKER_OPTIONS, GROUP_OPTIONS, METRICS_OPTIONS, SCRAM
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.change_settings import ChangeSettingsRequest, ChangeSettingsResponse
from kafkaprod.protocol.schema import Request, Response

ANY_ACL = AclFilter(acls.ANY, None, acls.ANY, None, None, acls.ANY, acls.ANY)
READ_ORDERS = Acl(acls.TOPIC, "orders", acls.LITERAL, "User:ann", "*", acls.READ, acls.ALLOW)


class Rig:
    """A controller, and the settings of two brokers that follow it."""

    def __init__(self) -> None:
        self.controller = Controller("c", session_timeout_ms=100, seed=1, now_ms=0)
        self.brokers = [ReplicatedSettings(), ReplicatedSettings()]
        self.refuses = False
        for broker in self.brokers:
            broker.ask_controller = self.answer

    def answer(self, request: Request) -> Response | None:
        if self.refuses:
            return None
        answers: list[Response] = []
        on_request(self.controller, self.over_the_wire(request), 0, answers.append)
        while self.controller.turn(0):
            pass
        for broker in self.brokers:
            broker.follow(self.controller.context.image)
        return answers[0]

    def over_the_wire(self, request: Request) -> Request:
        return ChangeSettingsRequest.decode(request.encode(0), 0)

    def image_after_restart(self) -> ClusterImage:
        batches = self.controller.log.batches()
        return Controller("c", session_timeout_ms=100, seed=1, now_ms=0, batches=batches).context.image


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_access_control_entries_are_the_same_on_all_brokers(rig: Rig) -> None:
    first, second = (Acls(settings, [], allows_if_none=True) for settings in rig.brokers)
    assert second.is_open
    first.add([READ_ORDERS, READ_ORDERS._replace(name="bills")])
    assert second.find(ANY_ACL) == first.find(ANY_ACL) == [READ_ORDERS, READ_ORDERS._replace(name="bills")]
    assert not second.is_open
    assert second.is_allowed("User:ann", "h", acls.READ, acls.TOPIC, "orders")
    assert not second.is_allowed("User:bob", "h", acls.READ, acls.TOPIC, "orders")
    second.remove([READ_ORDERS])
    assert first.find(ANY_ACL) == [READ_ORDERS._replace(name="bills")]
    assert list(rig.image_after_restart().acls.values()) == [tuple(READ_ORDERS._replace(name="bills"))]


def test_what_two_brokers_change_at_once_counts_once(rig: Rig) -> None:
    """Each has sent its change before it knew of the other's."""
    sent: list[Any] = []
    rig.brokers[0].ask_controller = lambda request: sent.append(request) or ChangeSettingsResponse()  # type: ignore[func-returns-value]
    for _ in range(2):
        Acls(rig.brokers[0], [], allows_if_none=True).add([READ_ORDERS])
    for request in sent:
        rig.answer(request)
    assert len(rig.controller.context.image.acls) == 1
    sent.clear()
    for _ in range(2):
        Acls(rig.brokers[0], [], allows_if_none=True).remove([READ_ORDERS])
    for request in sent:
        answer = rig.answer(request)
        assert isinstance(answer, ChangeSettingsResponse)
        assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, rig.controller.log.end_offset)
    assert rig.controller.context.image.acls == {}


def test_quotas_are_the_same_on_all_brokers(rig: Rig) -> None:
    first, second = map(Quotas, rig.brokers)
    entity = {"user": "ann", "client-id": None}
    first.alter([(entity, [Change("producer_byte_rate", 10.0)])])
    second.alter([(dict(reversed(entity.items())), [Change("consumer_byte_rate", 20.0)])])
    assert first.find([], is_strict=False) == [
        (dict(sorted(entity.items())), {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0})
    ]
    removals = [Change("producer_byte_rate", None), Change("consumer_byte_rate", None)]
    first.alter([(entity, removals)])
    assert second.find([], is_strict=False) == []
    assert rig.image_after_restart().quotas == {}


def test_credentials_are_the_same_on_all_brokers(rig: Rig) -> None:
    users = [Credentials({"ann": "secret"}), Credentials({"ann": "secret"})]
    first, second = (ScramStore(*pair) for pair in zip(rig.brokers, users, strict=True))
    first.alter({("bob", 1): keys_of(1, b"salted", b"salt", 4096), ("ann", 2): None})
    second.follow()
    assert second.describe() == first.describe() == {"ann": {1: 4096}, "bob": {1: 4096}}
    assert users[1].scram_keys("SCRAM-SHA-256", "bob") == users[0].scram_keys("SCRAM-SHA-256", "bob")
    again = ReplicatedSettings()
    again.follow(rig.image_after_restart())
    assert again.get(SCRAM) == rig.brokers[0].get(SCRAM)


@pytest.mark.parametrize("section", [BROKER_OPTIONS, GROUP_OPTIONS, METRICS_OPTIONS])
def test_options_are_the_same_on_all_brokers(rig: Rig, section: str) -> None:
    rig.brokers[0].put(section, {"": {"a": "1", "b": "2"}, "x": {"c": "3"}})
    rig.brokers[1].put(section, {"": {"a": "1"}, "x": {"c": "4"}})
    assert rig.brokers[0].get(section) == {"": {"a": "1"}, "x": {"c": "4"}}
    rig.brokers[1].put(section, {})
    assert rig.brokers[0].get(section) == {}


def test_a_change_that_is_none_asks_no_controller(rig: Rig) -> None:
    rig.brokers[0].put(GROUP_OPTIONS, {"g": {"a": "1"}})
    before = rig.controller.log.end_offset
    rig.brokers[1].put(GROUP_OPTIONS, {"g": {"a": "1"}})
    assert rig.controller.log.end_offset == before


def test_a_change_is_refused_without_a_controller(rig: Rig) -> None:
    rig.refuses = True
    with pytest.raises(RequestRefusedError, match="does not answer") as refusal:
        rig.brokers[0].put(GROUP_OPTIONS, {"g": {"a": "1"}})
    assert refusal.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert rig.brokers[0].get(GROUP_OPTIONS) == {}


def test_other_records_are_refused(rig: Rig) -> None:
    before = rig.controller.log.end_offset
    record = encode(TopicRecord(name="t", topic_id=uuid.UUID(int=1)))
    answer: Any = rig.answer(ChangeSettingsRequest(records=[record]))
    assert (answer.error_code, rig.controller.log.end_offset) == (ErrorCode.INVALID_REQUEST, before)


def test_the_history_names_changes_without_secrets(rig: Rig) -> None:
    lines: list[str] = []
    rig.controller._persist = lambda batch, image: lines.extend(sentences(batch, image))
    entries = Acls(rig.brokers[0], [], allows_if_none=True)
    entries.add([READ_ORDERS])
    entries.remove([READ_ORDERS])
    Quotas(rig.brokers[0]).alter([({"user": None}, [Change("producer_byte_rate", 10.0)])])
    Quotas(rig.brokers[0]).alter([({"user": None}, [Change("producer_byte_rate", None)])])
    store = ScramStore(rig.brokers[0], Credentials({}))
    store.alter({("bob", 1): keys_of(1, b"salted", b"salt", 4096)})
    store.alter({("bob", 1): None})
    assert lines == [
        "access control entry for User:ann on orders is added",
        "access control entry for User:ann on orders is removed",
        "quota of user (default): producer_byte_rate = 10",
        "quota of user (default): producer_byte_rate is removed",
        "SCRAM credential of bob is set",
        "SCRAM credential of bob is removed",
    ]
