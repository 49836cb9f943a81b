"""The lock-free protocols of the core, each explored in every order that a processor may give it.

No run on real processors shows that an order is impossible; this walks all of them. A protocol is a few steps for each
thread, copied by hand from the code that its test names: who changes that code changes the steps here. Two machines:

    tso: stores wait in a buffer and reach memory in order (x86-64)
    weak: they reach memory in any order over addresses, a published one after those before it; and a load may be
        answered earlier than its place, but not before an observe that stands in front of it

The second is a small model of aarch64: locks and exchanges wait there for the stores in front of them, which the
processor does not ask, and no load is taken before a branch. What it finds is there; it does not find all that is.
Each protocol is also explored with one mend taken out: the explorer must find what that loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

TSO, WEAK = "tso", "weak"

Memory = tuple[tuple[str, int], ...]
Step = tuple[str | int, ...]
Programs = tuple[tuple[Step, ...], ...]


class Thread(NamedTuple):
    """Where a thread is, what it has read, its stores that are not in memory yet, and the loads it answered early."""

    at: int
    read: Memory
    stores: tuple[tuple[str, int, bool], ...]
    past: Memory


class State(NamedTuple):
    memory: Memory
    threads: tuple[Thread, ...]


def changed(pairs: Memory, name: str, value: int) -> Memory:
    return tuple(sorted({**dict(pairs), name: value}.items()))


def replaced(state: State, index: int, thread: Thread, memory: Memory | None = None) -> State:
    threads = (*state.threads[:index], thread, *state.threads[index + 1 :])
    return State(state.memory if memory is None else memory, threads)


def drained(state: State, index: int, machine: str) -> Iterator[State]:
    """Each state in which one more store of the thread has reached memory."""
    thread = state.threads[index]
    for i, (name, value, is_published) in enumerate(thread.stores):
        earlier = thread.stores[:i]
        if i > 0 and (machine == TSO or is_published or any(name == other for other, _, _ in earlier)):
            continue
        rest = thread._replace(stores=(*earlier, *thread.stores[i + 1 :]))
        yield replaced(state, index, rest, changed(state.memory, name, value))


def looked_ahead(state: State, index: int, program: tuple[Step, ...]) -> Iterator[State]:
    """On the weak machine: answer a later load now, unless an observe, a fence or an exchange stands before it."""
    thread = state.threads[index]
    own = {name for name, _, _ in thread.stores}
    for kind, *names in program[thread.at :]:
        if kind in ("observe", "fence", "swap", "add", "lock", "if"):
            return
        name = str(names[0])
        if kind == "load" and name not in own and name not in dict(thread.past):
            early = changed(thread.past, name, dict(state.memory)[name])
            yield replaced(state, index, thread._replace(past=early))
        if kind in ("store", "publish"):
            own.add(name)


def stepped(state: State, index: int, program: tuple[Step, ...]) -> Iterator[State]:
    """The state after the thread's next step; none while that must wait."""
    thread = state.threads[index]
    kind, *operands = program[thread.at]
    after = thread._replace(at=thread.at + 1)
    memory = dict(state.memory)
    if kind in ("store", "publish"):
        name, value = str(operands[0]), int(operands[1])
        past = tuple(pair for pair in after.past if pair[0] != name)
        yield replaced(
            state, index, after._replace(stores=(*thread.stores, (name, value, kind == "publish")), past=past)
        )
    elif kind in ("load", "observe"):
        name = str(operands[0])
        own = [value for other, value, _ in thread.stores if other == name]
        early = dict(thread.past) if kind == "load" else {}
        value = own[-1] if own else early.get(name, memory[name])
        past = tuple(pair for pair in thread.past if pair[0] != name) if kind == "load" else ()
        yield replaced(state, index, after._replace(read=changed(thread.read, name, value), past=past))
    elif kind == "if":  # read value, how many steps to skip otherwise
        skip = 0 if dict(thread.read)[str(operands[0])] == operands[1] else int(operands[2])
        yield replaced(state, index, thread._replace(at=thread.at + 1 + skip))
    elif kind == "fence":
        if not thread.stores:
            yield replaced(state, index, after)
    elif not thread.stores:  # swap, add, lock: at once, after the thread's stores are in memory
        name, value = str(operands[0]), int(operands[1])
        if kind == "lock" and memory[name] != 0:
            return  # waits
        result = memory[name] + value if kind == "add" else memory[name]
        read = changed(thread.read, name, result)
        new = result if kind == "add" else value
        yield replaced(state, index, after._replace(read=read, past=()), changed(state.memory, name, new))


def explore(
    machine: str, programs: Programs, is_wrong: Callable[[dict[str, int], list[dict[str, int]]], bool]
) -> tuple[int, int]:
    """Walk all states; return how many there are, and how many ends are wrong."""
    names = {str(step[1]) for program in programs for step in program if len(step) > 1}
    start = State(tuple((name, 0) for name in sorted(names)), tuple(Thread(0, (), (), ()) for _ in programs))
    seen, todo, wrong = {start}, [start], 0
    while todo:
        state = todo.pop()
        following: list[State] = []
        for index, program in enumerate(programs):
            following += drained(state, index, machine)
            if state.threads[index].at < len(program):
                following += stepped(state, index, program)
                if machine == WEAK:
                    following += looked_ahead(state, index, program)
        if not following:
            wrong += is_wrong(dict(state.memory), [dict(thread.read) for thread in state.threads])
        fresh = set(following) - seen
        seen |= fresh
        todo += fresh
    return len(seen), wrong


FENCE: Step = ("fence",)


def without(program: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    assert step in program
    return tuple(other for other in program if other != step)


# accumulator.pyx, append_locked() and tell_sender(); set_sender_sleeps(), then drain.pyx, ready().
APPENDER: tuple[Step, ...] = (
    ("lock", "lock", 1),
    ("store", "queue_length", 1),
    ("publish", "lock", 0),
    FENCE,
    ("load", "awaited_events"),
    ("if", "awaited_events", 1, 1),
    ("store", "wakeup", 1),
)
SLEEPER: tuple[Step, ...] = (("store", "awaited_events", 1), FENCE, ("load", "queue_length"))


def sleeps_beside_a_batch(memory: dict[str, int], read: list[dict[str, int]]) -> bool:
    return read[1]["queue_length"] == 0 and memory["wakeup"] == 0


@pytest.mark.parametrize("machine", [TSO, WEAK])
def test_sender_is_woken_or_sees_the_batch(machine: str) -> None:
    states, wrong = explore(machine, (APPENDER, SLEEPER), sleeps_beside_a_batch)
    assert wrong == 0
    assert states > 50


@pytest.mark.parametrize("machine", [TSO, WEAK])
@pytest.mark.parametrize("planted", ["appender", "sleeper", "scan before the flag"])
def test_sender_would_sleep_beside_a_batch(machine: str, planted: str) -> None:
    appender = without(APPENDER, FENCE) if planted == "appender" else APPENDER
    sleeper = without(SLEEPER, FENCE) if planted == "sleeper" else SLEEPER
    if planted == "scan before the flag":
        sleeper = tuple(reversed(SLEEPER))
    assert explore(machine, (appender, sleeper), sleeps_beside_a_batch)[1] > 0


def writer(last: str) -> tuple[Step, ...]:
    return (("store", "body", 1), (last, "flag", 1))


def reader(first: str) -> tuple[Step, ...]:
    return ((first, "flag"), ("load", "body"))


def flag_without_body(_: dict[str, int], read: list[dict[str, int]]) -> bool:
    return read[1]["flag"] == 1 and read[1]["body"] == 0


@pytest.mark.parametrize("machine", [TSO, WEAK])
def test_what_was_published_is_there_for_who_observes_it(machine: str) -> None:
    """An outcome and its offset, a result object and its fields, the head and its batch."""
    assert explore(machine, (writer("publish"), reader("observe")), flag_without_body)[1] == 0


def test_plain_stores_or_loads_would_show_an_outcome_before_its_offset() -> None:
    assert explore(WEAK, (writer("store"), reader("observe")), flag_without_body)[1] > 0
    assert explore(WEAK, (writer("publish"), reader("load")), flag_without_body)[1] > 0
    assert explore(TSO, (writer("store"), reader("load")), flag_without_body)[1] == 0  # what x86-64 hides


@pytest.mark.parametrize("machine", [TSO, WEAK])
def test_array_loaded_before_its_count_would_be_too_short(machine: str) -> None:
    def array_is_shorter(_: dict[str, int], read: list[dict[str, int]]) -> bool:
        return read[1]["count"] > read[1]["array"]

    grow: tuple[Step, ...] = (("store", "array", 1), ("publish", "count", 1))
    assert explore(machine, (grow, (("observe", "count"), ("load", "array"))), array_is_shorter)[1] == 0
    assert explore(machine, (grow, (("load", "array"), ("observe", "count"))), array_is_shorter)[1] > 0


# waking.pyx: wake_state(), after its caller made the condition true.
WAKER: tuple[Step, ...] = (
    ("store", "condition", 1),
    ("add", "wake_count", 1),
    ("if", "wake_count", 1, 1),
    ("swap", "released", 1),
)


@pytest.mark.parametrize("machine", [TSO, WEAK])
@pytest.mark.parametrize(("reset", "is_lost"), [("swap", False), ("store", True)])
def test_wake_between_the_reset_and_the_look_is_not_lost(machine: str, reset: str, is_lost: bool) -> None:
    """Waiter.wait() ends by the wake of another, then its caller looks at the condition."""
    earlier: tuple[Step, ...] = (("add", "wake_count", 1), ("swap", "is_woken", 1))
    waiter: tuple[Step, ...] = (
        ("load", "is_woken"),
        ("if", "is_woken", 1, 2),
        (reset, "wake_count", 0),
        ("load", "condition"),
    )

    def sleeps_although_true(memory: dict[str, int], read: list[dict[str, int]]) -> bool:
        return read[2]["is_woken"] == 1 and read[2]["condition"] == 0 and memory["released"] == 0

    assert (explore(machine, (earlier, WAKER, waiter), sleeps_although_true)[1] > 0) == is_lost


# settlement.pyx, finish_batch(); accumulator.pyx, unpublished_batch_count.
@pytest.mark.parametrize(("first_look", "is_missed"), [("observe", False), ("load", True)])
def test_batch_between_the_list_and_its_callbacks_is_counted(first_look: str, is_missed: bool) -> None:
    settle: tuple[Step, ...] = (("add", "publishing", 1), ("publish", "is_off_list", 1))
    look: tuple[Step, ...] = ((first_look, "is_off_list"), ("load", "publishing"))

    def is_uncounted(_: dict[str, int], read: list[dict[str, int]]) -> bool:
        return read[1]["is_off_list"] == 1 and read[1]["publishing"] == 0

    assert (explore(WEAK, (settle, look), is_uncounted)[1] > 0) == is_missed
