from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from kafkaprod.engine.identity import MAX_WAIT_MS, IdentityRequest
from kafkaprod.engine.transactions.calls import Call
from kafkaprod.engine.transactions.identity import TransactionalIdentity
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import (
    ConnectionLostError,
    DeliveryFailedError,
    IllegalStateError,
    KafkaError,
    ProducerClosedError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.negotiation import BrokerVersions
from kafkaprod.structs import Node
from tests.support.config import unchecked_config
from tests.support.core.core_engine import TOPIC, Engine, only_ref, succeed
from tests.support.engine.coordinators import answer

MODERN = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.END_TXN: (0, 5),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
}


def nothing() -> None:
    pass


class Nodes:
    """The part of a NodePool that the identity uses."""

    def __init__(self, *brokers: BrokerVersions) -> None:
        self.brokers: dict[int, BrokerVersions | None] = dict(enumerate(brokers, 1))
        self.added: list[Node] = []
        self.ready_count = len(brokers)
        self.to_wake: list[Callable[[], None]] = []

    @property
    def members(self) -> Nodes:
        return self

    @property
    def states(self) -> dict[int, BrokerVersions | None]:
        return self.brokers

    def node_ids(self) -> list[int]:
        return list(self.brokers)

    def versions(self, node_id: int) -> BrokerVersions | None:
        return self.brokers[node_id]

    def add_node(self, node: Node) -> None:
        self.added.append(node)

    def wakeup(self) -> None:
        pass


def broker(level: int = 2, epoch: int = 7, **ranges: tuple[int, int]) -> BrokerVersions:
    keys: dict[int, tuple[int, int]] = {int(key): spoken for key, spoken in MODERN.items()}
    keys |= {ApiKey[name]: spoken for name, spoken in ranges.items()}
    return BrokerVersions(keys, {"transaction.version": level} if level else {}, epoch)


class Bench:
    """An identity over a real accumulator and drain."""

    def __init__(self, *brokers: BrokerVersions) -> None:
        self.engine = Engine([1, 1], is_idempotent=True, linger_ms=0)
        self.pool = Nodes(*(brokers or [broker()]))
        self.identity = TransactionalIdentity(
            unchecked_config(transactional_id="tx", max_block_ms=5_000),
            self.engine.accumulator,
            self.engine.drain,
            self.pool,  # type: ignore[arg-type]
            lambda: 0.5,
        )
        self.now_ms = 0

    def wanted(self) -> IdentityRequest | None:
        delay_ms = self.identity.delay_ms(self.now_ms)
        self.now_ms += delay_ms if delay_ms < MAX_WAIT_MS else 0
        return self.identity.wanted(self.now_ms)

    def expect(self, step: Step) -> IdentityRequest:
        wanted = self.wanted()
        assert wanted is not None
        assert self.identity._prepared is not None
        assert self.identity._prepared[0].step is step
        return wanted

    def answer(self, step: Step, code: int = 0, producer: tuple[int, int] = (-1, -1)) -> None:
        wanted = self.expect(step)
        assert self.identity._prepared is not None
        request = self.identity._prepared[0]
        self.identity.on_sent(wanted)
        assert self.wanted() is None
        assert wanted.versions is not None
        self.end(wanted, version=wanted.versions[1], response=answer(request, code, producer))

    def end(self, wanted: IdentityRequest, **outcome: Any) -> None:
        done = InFlightRequest(1, lambda request, now_ms: None, 0, outcome.pop("version", 0), 0, 0, 0)
        for name, value in outcome.items():
            setattr(done, name, value)
        self.identity.on_response(wanted, done, self.now_ms)

    def init(self) -> None:
        call = self.identity.start_init(nothing)
        self.answer(Step.FIND_COORDINATOR)
        self.answer(Step.INIT, 0, (4000, 1))
        self.identity.finish(call)

    def begin(self) -> None:
        self.identity.begin()
        assert self.wanted() is None

    def failure(self, call: Call | Callable[[], Any]) -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            self.identity.finish(call) if isinstance(call, Call) else call()
        return caught.value


def test_records_are_refused_outside_of_a_transaction() -> None:
    bench = Bench()
    with pytest.raises(IllegalStateError):
        bench.engine.append(b"v")
    bench.init()
    with pytest.raises(IllegalStateError):
        bench.engine.append(b"v")
    bench.begin()
    assert bench.identity.check_sending() == 1
    bench.engine.append(b"v")
    bench.identity.start_commit(nothing)
    with pytest.raises(IllegalStateError):
        bench.engine.append(b"v")
    assert bench.wanted() is None  # the sender brings the core up to the machine: that must not let records in again
    with pytest.raises(IllegalStateError):
        bench.engine.append(b"v")


def test_v1_partition_is_added_when_its_batch_waits() -> None:
    bench = Bench(broker(level=0))
    bench.init()
    bench.begin()
    assert bench.identity.produce_versions == (3, 11)
    bench.engine.append(b"v", 1)
    assert bench.engine.ready_nodes() == []
    bench.answer(Step.ADD_PARTITIONS)
    assert bench.engine.ready_nodes() == [1]
    request = bench.engine.take()
    call = bench.identity.start_commit(nothing)
    assert bench.wanted() is None
    succeed(request)
    bench.answer(Step.END)
    bench.identity.finish(call)


def test_v2_commit_waits_for_batches_only() -> None:
    bench = Bench()
    bench.init()
    bench.begin()
    assert bench.identity.produce_versions == (12, 13)
    bench.engine.append(b"v")
    assert bench.engine.ready_nodes() == [1]
    call = bench.identity.start_commit(nothing)
    assert bench.wanted() is None
    succeed(bench.engine.take())
    bench.answer(Step.END, 0, (4000, 2))
    bench.identity.finish(call)
    assert bench.engine.drain.producer_epoch == 2
    assert bench.engine.drain.transaction == 0


class NoLock:
    """A lock that may not be taken."""

    def __enter__(self) -> None:
        raise AssertionError("the lock is taken")

    def __exit__(self, *_: object) -> None:
        pass


class CountingAccumulator:
    """An accumulator with which `then` happens right after its batches were counted."""

    def __init__(self, accumulator: Any, then: Callable[[], None]) -> None:
        self._accumulator, self._then = accumulator, then

    @property
    def incomplete_batch_count(self) -> int:
        count: int = self._accumulator.incomplete_batch_count
        self._then()
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accumulator, name)


def test_commit_sees_a_record_that_came_after_the_batches_were_counted() -> None:
    bench = Bench()
    bench.init()
    bench.begin()
    bench.engine.append(b"v")
    succeed(bench.engine.take())
    identity = bench.identity

    def send_and_commit() -> None:
        if cast(Any, identity._lock)._is_owned() or not identity.is_open:
            return  # an application thread would have to wait
        bench.engine.append(b"w")
        identity.start_commit(nothing)

    identity._accumulator = CountingAccumulator(identity._accumulator, send_and_commit)  # type: ignore[assignment]
    identity._is_idle = False  # as after any call
    assert bench.wanted() is None
    assert bench.wanted() is None


def test_sender_thread_does_nothing_while_records_are_only_sent() -> None:
    bench = Bench()
    bench.init()
    bench.begin()
    bench.engine.append(b"v")
    succeed(bench.engine.take())
    bench.identity._lock, lock = NoLock(), bench.identity._lock  # type: ignore[assignment]
    assert bench.wanted() is None
    bench.identity._lock = lock
    call = bench.identity.start_commit(nothing)
    bench.answer(Step.END, 0, (4000, 2))
    bench.identity.finish(call)
    assert bench.engine.drain.producer_epoch == 2


def test_rules_change_with_a_broker_that_connects_between_transactions() -> None:
    bench = Bench(broker(level=1))
    bench.init()
    bench.begin()
    assert bench.identity.produce_versions == (3, 11)
    bench.pool.brokers[2] = broker(level=2, epoch=8)
    bench.pool.ready_count += 1
    assert bench.wanted() is None
    del bench.pool.brokers[2]
    call = bench.identity.start_commit(nothing)  # of an empty transaction
    assert bench.wanted() is not None
    bench.answer(Step.BUMP, 0, (4000, 2))
    bench.identity.finish(call)
    bench.begin()
    assert bench.identity.produce_versions == (12, 13)


def test_failed_batch_stops_the_commit_and_fails_what_was_not_sent() -> None:
    bench = Bench()
    bench.init()
    bench.begin()
    bench.engine.append(b"v", 0)
    ref = only_ref(bench.engine.take())
    late = bench.engine.append(b"w", 1)
    call = bench.identity.start_commit(nothing)
    ref.fail(KafkaError("no"))
    assert bench.wanted() is None
    assert isinstance(bench.failure(call), DeliveryFailedError)
    assert isinstance(late.exception(0), TransactionAbortedError)
    assert isinstance(bench.failure(bench.identity.check_sending), DeliveryFailedError)
    abort = bench.identity.start_abort(nothing)
    bench.answer(Step.END, 0, (4000, 2))
    bench.identity.finish(abort)


def test_batch_that_was_sent_is_finished_before_the_abort() -> None:
    bench = Bench()
    bench.init()
    bench.begin()
    sent = bench.engine.append(b"v", 0)
    request = bench.engine.take()
    unsent = bench.engine.append(b"w", 1)
    abort = bench.identity.start_abort(nothing)
    assert bench.wanted() is None
    assert isinstance(unsent.exception(0), TransactionAbortedError)
    assert not sent.done()
    succeed(request)
    bench.answer(Step.END, 0, (4000, 2))
    bench.identity.finish(abort)


def test_fatal_answer_fails_every_batch() -> None:
    bench = Bench()
    bench.init()
    bench.begin()
    future = bench.engine.append(b"v")
    call = bench.identity.start_offsets({(TOPIC, 0): 1}, "g", nothing)
    assert call is not None
    bench.answer(Step.FIND_COORDINATOR)
    bench.answer(Step.COMMIT_OFFSETS, 53)
    assert bench.failure(call).category == "invalid"
    assert future.exception(0) is not None


def test_coordinator_is_given_to_the_pool_and_looked_for_again_when_it_cannot_be_reached() -> None:
    bench = Bench()
    bench.identity.start_init(nothing)
    bench.answer(Step.FIND_COORDINATOR)
    wanted = bench.expect(Step.INIT)
    assert bench.pool.added[-1] == Node(1, "h", 9092)
    assert bench.expect(Step.INIT) is wanted
    bench.identity.on_unsendable(wanted, ConnectionLostError("away"), bench.now_ms)
    assert bench.identity.wanted(bench.now_ms) is None
    bench.answer(Step.FIND_COORDINATOR)
    bench.expect(Step.INIT)


def test_broker_without_a_version_of_a_request_ends_the_call() -> None:
    bench = Bench()
    call = bench.identity.start_init(nothing)
    wanted = bench.expect(Step.FIND_COORDINATOR)
    bench.identity.on_unsendable(wanted, UnsupportedVersionError("old"), 0)
    assert isinstance(bench.failure(call), UnsupportedVersionError)


def test_lost_answer_is_asked_for_again() -> None:
    bench = Bench()
    call = bench.identity.start_init(nothing)
    wanted = bench.expect(Step.FIND_COORDINATOR)
    bench.identity.on_sent(wanted)
    bench.end(wanted, error=ConnectionLostError("cut"), is_possibly_persisted=True)
    bench.answer(Step.FIND_COORDINATOR)
    bench.answer(Step.INIT, 0, (4000, 1))
    bench.identity.finish(call)


@pytest.mark.parametrize(
    ("brokers", "is_v2"),
    [
        ([broker()], True),
        ([broker(level=1)], False),
        ([broker(level=0, epoch=-1)], False),
        ([broker(level=1, epoch=6), broker(level=2, epoch=7)], True),
        ([broker(level=2, epoch=6), broker(level=1, epoch=7)], False),
        ([broker(), broker(PRODUCE=(3, 11))], False),
        ([broker(), broker(TXN_OFFSET_COMMIT=(0, 4))], False),
        ([broker(END_TXN=(0, 4))], False),
        ([broker(INIT_PRODUCER_ID=(0, 2))], False),
    ],
)
def test_rules_follow_the_newest_features_and_the_oldest_broker(brokers: list[BrokerVersions], is_v2: bool) -> None:
    bench = Bench(*brokers)
    bench.init()
    bench.begin()
    assert (bench.identity.produce_versions == (12, 13)) is is_v2


def test_an_old_broker_that_is_not_connected_any_more_still_counts() -> None:
    bench = Bench(broker(level=1, ADD_PARTITIONS_TO_TXN=(0, 3)), broker(level=1, ADD_PARTITIONS_TO_TXN=(0, 4)))
    bench.init()
    bench.begin()
    assert not bench.identity._machine.refuses_late
    bench.pool.brokers[1] = None  # it did not answer, and its connection was closed
    bench.identity._look_at_brokers()
    assert not bench.identity._machine.refuses_late
    del bench.pool.brokers[1]
    bench.identity._look_at_brokers()
    assert bench.identity._machine.refuses_late


def test_call_that_times_out_is_resumed() -> None:
    bench = Bench()
    call = bench.identity.start_init(nothing)
    assert bench.identity.time_out(call, 1) is not None
    woken: list[bool] = []
    assert bench.identity.start_init(lambda: woken.append(True)) is call
    bench.answer(Step.FIND_COORDINATOR)
    bench.answer(Step.INIT, 0, (4000, 1))
    assert not woken  # but right before the sender thread waits
    for wake in bench.pool.to_wake:
        wake()
    assert woken == [True]
    assert bench.identity.time_out(call, 1) is None
    bench.identity.finish(call)


def test_interrupted_call_keeps_its_outcome_for_the_next_one() -> None:
    bench = Bench()
    call = bench.identity.start_init(nothing)
    bench.answer(Step.FIND_COORDINATOR)
    bench.answer(Step.INIT, 0, (4000, 1))
    bench.identity.let_go(lambda: None)  # somebody else, who does not wait for it
    with pytest.raises(IllegalStateError, match="another thread"):
        bench.identity.start_init(nothing)
    bench.identity.let_go(nothing)
    with pytest.raises(IllegalStateError, match="must be repeated"):
        bench.identity.begin()
    woken: list[bool] = []
    assert bench.identity.start_init(lambda: woken.append(True)) is call
    assert woken == [True]
    bench.identity.finish(call)


def test_closing_aborts_and_waits_for_that_but_not_for_ever() -> None:
    bench = Bench()
    bench.init()
    assert bench.identity.is_finished(0)
    bench = Bench()
    bench.init()
    bench.begin()
    bench.engine.append(b"v")
    succeed(bench.engine.take())
    assert not bench.identity.is_finished(bench.now_ms)
    bench.expect(Step.END)
    assert not bench.identity.is_finished(bench.now_ms + 4_999)
    assert bench.identity.is_finished(bench.now_ms + 5_000)
    bench.answer(Step.END, 0, (4000, 2))
    assert bench.identity.is_finished(bench.now_ms)


def test_call_fails_when_the_sender_thread_ends_and_afterwards() -> None:
    bench = Bench()
    call = bench.identity.start_init(nothing)
    bench.identity.on_end(ProducerClosedError("closed"))
    assert isinstance(bench.failure(call), ProducerClosedError)
    with pytest.raises(ProducerClosedError):
        bench.identity.start_init(nothing)
