"""Who coordinates: the leader of an internal topic's log, once it has read it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkaprod.broker.cluster.coordination import Coordination
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.server.router import HANDLERS, coordinator_of
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.list_transactions import ListTransactionsRequest

TOPIC_ID = uuid.UUID(int=1)
KEY = (TOPIC_ID, 0)


class Rig:
    """A broker's coordination; the control thread is run by hand."""

    def __init__(self) -> None:
        self.opened: list[Any] = []
        self.control: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.replica = SimpleNamespace(is_leader=False, leader_epoch=0)
        self.error: Exception | None = None
        partition = SimpleNamespace(replica=self.replica, log=SimpleNamespace(log_end_offset=3))
        broker = SimpleNamespace(
            open_groups=self._open,
            image=SimpleNamespace(topic_ids={OFFSETS_TOPIC: TOPIC_ID}),
            topics=SimpleNamespace(partition=lambda name, index: partition),
            run_control=lambda work, then=lambda: None: self.control.append((work, then)),
        )
        self.coordination = Coordination(cast(Any, broker), cast(Any, None))

    def lead(self, epoch: int, *, is_leader: bool = True) -> None:
        self.replica.is_leader, self.replica.leader_epoch = is_leader, epoch
        self.coordination.on_metadata([KEY])

    def run_control(self) -> None:
        calls, self.control = self.control, []
        for work, then in calls:
            work()
            then()

    @property
    def refusal(self) -> E:
        return self.coordination.refusal(GROUPS)

    @property
    def holds_answers(self) -> bool:
        receiver: Callable[[Any], None] = [].append
        return self.coordination.after_replicas(GROUPS, lambda _: HeartbeatResponse(), receiver) is not receiver

    def _open(self, log: Any) -> None:
        self.opened.append(None if log is None else log.latest_epoch)
        if self.error is not None and log is not None:
            raise self.error


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_leader_answers_once_it_has_read_the_log(rig: Rig) -> None:
    assert rig.refusal == E.NOT_COORDINATOR
    rig.lead(4)
    assert rig.refusal == E.COORDINATOR_LOAD_IN_PROGRESS
    rig.run_control()
    assert (rig.refusal, rig.opened) == (E.NONE, [4])
    assert rig.holds_answers


def test_metadata_that_changes_nothing_loads_nothing(rig: Rig) -> None:
    rig.lead(4)
    rig.run_control()
    rig.lead(4)
    rig.coordination.on_metadata([(TOPIC_ID, 1)])
    assert (rig.control, rig.refusal) == ([], E.NONE)


def test_a_broker_that_leads_no_more_forgets(rig: Rig) -> None:
    rig.lead(4)
    rig.run_control()
    rig.lead(5, is_leader=False)
    assert rig.refusal == E.NOT_COORDINATOR, "at once"
    rig.run_control()
    assert rig.opened == [4, None]
    assert not rig.holds_answers


def test_a_new_epoch_of_the_same_leader_is_loaded_again(rig: Rig) -> None:
    """Another broker may have led meanwhile; what was read for the old epoch does not count."""
    rig.lead(4)
    rig.lead(6)
    first, second = rig.control
    for call in first:
        call()
    assert rig.refusal == E.COORDINATOR_LOAD_IN_PROGRESS
    for call in second:
        call()
    assert (rig.refusal, rig.opened) == (E.NONE, [4, 6])


def test_a_damaged_log_leaves_an_empty_coordinator(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.error = CorruptDataError("a record is damaged")
    rig.lead(4)
    rig.run_control()
    assert (rig.refusal, rig.opened) == (E.NONE, [4, None])
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("api", "body", "error"),
    [
        (ApiKey.PRODUCE, HeartbeatRequest(), E.NONE),
        (ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None), E.NONE),
        (ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id="t"), E.NOT_COORDINATOR),
        (ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), E.NONE),
    ],
)
def test_what_needs_no_coordinator(rig: Rig, api: ApiKey, body: Any, error: E) -> None:
    coordinator = coordinator_of(HANDLERS[api], body)
    assert (E.NONE if coordinator is None else rig.coordination.refusal(coordinator)) == error
