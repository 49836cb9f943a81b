"""Every sequence of answers, losses, moves and takeovers around a commit: what errors say is so.

The machine commits, and aborts after an abortable error, against `model_log`. Whatever a call says is compared with
what consumers of committed records may see in the end, in every log that can follow. Sequences that lead to the same
state of machine and log are continued once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kafkaprod.engine.transactions.calls import Call
from kafkaprod.engine.transactions.states import State
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import CommitOutcome
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition
from tests.support.engine.coordinators import Bench
from tests.support.engine.model_log import EPOCH, End, World

LENGTH = 4
FUTURE = 9_999
# Answers to a write that the log has taken, or not: the producer cannot know.
AFTER_WRITE = [
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    FUTURE,
]
# What a former coordinator may answer from its memory, or a coordinator before it writes.
BEFORE_WRITE = [
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
    *AFTER_WRITE,
]
Event = Callable[["Run"], None]


@dataclass
class Run:
    """A machine that ends its transaction, and the world.

    Attributes:
        call: The commit, or the abort that followed.
        said: What the last call said; None: it has not ended.
        is_over: No further request will be sent.
    """

    bench: Bench
    world: World
    call: Call
    said: CommitOutcome | None = None
    is_over: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides what may follow."""
        machine = self.bench.machine
        may_ask_again = machine._may_ask_again(self.bench.now_ms)
        return self.world, machine.state, machine._log, may_ask_again, self.call.kind, self.said, self.is_over

    def attempt(self) -> End:
        """Have EndTxn sent."""
        while (request := self.bench.next()) is not None and request.step is Step.FIND_COORDINATOR:
            self.bench.respond(request)
        assert request is not None
        assert request.step is Step.END
        return End(request.is_commit, EPOCH)

    def answer(self, code: int) -> None:
        """Answer it, and take what the call says."""
        request = self.bench.machine._in_flight
        assert request is not None
        self.bench.respond(request, code, (4000, EPOCH + 1) if self.world.is_v2 else (-1, -1))
        machine, call = self.bench.machine, self.call
        if call.is_decided or (call.is_done and call.failure is None):
            self.said = "committed" if request.is_commit else "not committed"
            self.is_over = True
        elif call.is_done:
            error = machine.settle(call)
            assert error is not None
            assert error.outcome is not None
            self.said = error.outcome
            self.is_over = machine.state is State.FATAL_ERROR
            if not self.is_over:
                self.call = machine.abort()


def start(*, is_v2: bool) -> Run:
    bench = Bench(is_v2=is_v2)
    bench.init((4000, EPOCH))
    bench.begin(TopicPartition("t", 0))
    return Run(bench, World(is_v2), bench.machine.commit())


# -- events ------------------------------------------------------------------------------------------------------------


def happens(change: Callable[[World], World]) -> Event:
    def event(run: Run) -> None:
        run.world = change(run.world)

    return event


def answered(run: Run) -> None:
    code, run.world = run.world.handle(run.attempt())
    run.answer(code)


def answered_without_a_write(code: int) -> Event:
    def event(run: Run) -> None:
        run.attempt()
        run.answer(code)

    return event


def answered_after_a_write(code: int) -> Event:
    """The log has it, the replicas do not."""

    def event(run: Run) -> None:
        refusal, record = run.world.judge(run.attempt())
        if record is not None:
            run.world = replace(run.world, tail=(*run.world.tail, record))
        run.answer(refusal if record is None else code)

    return event


def silent(take: Callable[[World, End], World]) -> Event:
    def event(run: Run) -> None:
        run.world = take(run.world, run.attempt())
        run.bench.lose()

    return event


def in_the_tail(world: World, end: End) -> World:
    record = world.judge(end)[1]
    return world if record is None else replace(world, tail=(*world.tail, record))


EVENTS: list[Event] = [
    happens(lambda world: world.move(keeps_tail=True)),
    happens(lambda world: world.move(keeps_tail=False)),
    happens(World.take_over),
    happens(World.time_out),
    happens(World.expire),
    happens(World.revoke),
    happens(World.deliver),
    answered,
    silent(lambda world, _: world),
    silent(lambda world, end: world.handle(end)[1]),
    silent(in_the_tail),
    silent(lambda world, end: replace(world, late=(*world.late, end))),
    *(answered_without_a_write(code) for code in BEFORE_WRITE),
    *(answered_after_a_write(code) for code in AFTER_WRITE),
]


def replay(path: tuple[int, ...], *, is_v2: bool) -> Run:
    run = start(is_v2=is_v2)
    for index in path:
        EVENTS[index](run)
    return run


def check(run: Run) -> None:
    ends = run.world.possible_ends()
    if run.said == "committed":
        assert ends == {True}
    elif run.said == "not committed":
        assert ends == {False}


@pytest.mark.parametrize("is_v2", [False, True])
def test_what_a_call_says_is_what_committed_readers_see(is_v2: bool) -> None:
    paths: list[tuple[int, ...]] = [()]
    seen = {start(is_v2=is_v2).key}
    said: set[CommitOutcome | None] = set()
    for _ in range(LENGTH):
        longer: list[tuple[int, ...]] = []
        for path in paths:
            for index in range(len(EVENTS)):
                run = replay((*path, index), is_v2=is_v2)
                if run.key in seen:
                    continue
                seen.add(run.key)
                said.add(run.said)
                check(run)
                if not run.is_over:
                    longer.append((*path, index))
        paths = longer
    assert said == {"committed", "not committed", "unknown", None}
