"""The coordinator of transactions: when the markers of a decision go out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.markers import Marker
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch, TransactionState
from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig, TransactionCoordinator
from kafkaprod.broker.coordinator.transaction_log import TransactionLog
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import open_log

NOW_MS = 1_700_000_000_000
CHECK_MS = 100
T0 = TopicPartition("t", 0)


class Rig:
    """A coordinator whose log has replicas, and the markers that it sends.

    Attributes:
        waiting: What waits for the replicas.
        sent: Markers, and where they go to.
        error: The outcome of each.
    """

    def __init__(self, directory: Path) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.sent: list[tuple[bool, list[TopicPartition]]] = []
        self.error = 0
        log = open_log(directory)
        self.store = TransactionLog([log], lambda: log, lambda: 2)
        config = TransactionConfig(timeout_check_ms=CHECK_MS)
        self.coordinator = TransactionCoordinator(config, self.store, lambda: 4000, self, self.waiting.append)
        self._now_ms = 0

    def send(
        self,
        marker: Marker,
        partitions: Collection[TopicPartition],
        on_done: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        """See `MarkerSink`."""
        self.sent.append((marker.is_commit, list(partitions)))
        on_done(dict.fromkeys(partitions, self.error))

    def begin(self) -> ProducerIdAndEpoch:
        producer = self.coordinator.init_producer("tx", None, 1000, NOW_MS).answer
        assert self.coordinator.add_partitions("tx", producer, [T0], 2, NOW_MS) == 0
        return producer

    def let_check(self, after_ms: int = 0) -> None:
        """Let the timer run out."""
        self.coordinator.next_deadline_ms(self._now_ms)
        self._now_ms += CHECK_MS
        self.coordinator.on_time(self._now_ms, NOW_MS + after_ms)

    def replicate(self) -> None:
        """Let the replicas have all that is written."""
        waiting, self.waiting[:] = list(self.waiting), []
        for call in waiting:
            call()

    @property
    def state(self) -> TransactionState:
        return self.coordinator.states["tx"].state


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_decision_has_its_markers_once_it_is_replicated_whatever_the_timer_does(rig: Rig) -> None:
    """Else the next coordinator, which does not know of it, aborts what consumers have read as committed."""
    producer = rig.begin()
    assert rig.coordinator.end("tx", producer, is_commit=True, client_version=2, now_ms=NOW_MS).error == 0
    rig.let_check()
    assert (rig.state, rig.sent) == (TransactionState.PREPARE_COMMIT, [])
    rig.replicate()
    assert (rig.state, rig.sent) == (TransactionState.COMPLETE_COMMIT, [(True, [T0])])


def test_an_abort_by_the_timer_waits_for_the_replicas_too(rig: Rig) -> None:
    rig.begin()
    rig.let_check(after_ms=1001)
    rig.let_check(after_ms=1101)
    assert (rig.state, rig.sent) == (TransactionState.PREPARE_ABORT, [])
    rig.replicate()
    assert (rig.state, rig.sent) == (TransactionState.COMPLETE_ABORT, [(False, [T0])])


def test_markers_that_failed_are_sent_again_by_the_timer(rig: Rig) -> None:
    producer = rig.begin()
    rig.coordinator.end("tx", producer, is_commit=True, client_version=2, now_ms=NOW_MS)
    rig.error = 56
    rig.replicate()
    assert rig.state is TransactionState.PREPARE_COMMIT
    rig.error = 0
    rig.let_check()
    rig.replicate()
    assert (rig.state, rig.sent) == (TransactionState.COMPLETE_COMMIT, [(True, [T0]), (True, [T0])])


@pytest.mark.parametrize(
    ("refusal", "code", "level"),
    [
        (RequestRefusedError(ErrorCode.NOT_COORDINATOR, "moved"), ErrorCode.NOT_COORDINATOR, "INFO"),
        (RequestRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "few"), ErrorCode.COORDINATOR_NOT_AVAILABLE, "INFO"),
        (LogError(ErrorCode.KAFKA_STORAGE_ERROR, "disk"), ErrorCode.COORDINATOR_NOT_AVAILABLE, "ERROR"),
    ],
)
def test_a_state_that_is_not_written_is_refused_and_only_a_disk_is_an_error(
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: BrokerError,
    code: ErrorCode,
    level: str,
) -> None:
    producer = rig.begin()

    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(rig.store, "write", refuse)
    caplog.set_level("INFO", "kafkaprod")
    assert rig.coordinator.end("tx", producer, is_commit=True, client_version=2, now_ms=NOW_MS).error is code
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [(level, None)]
    assert rig.state is TransactionState.ONGOING
