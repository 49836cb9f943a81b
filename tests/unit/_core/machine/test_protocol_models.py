"""The lock-free protocols of the core, each explored in every order that a processor may give it.

A protocol is a few steps for each thread, copied by hand from the code that its test names: who changes that code
changes the steps here. `tests/support/core/orders.py` walks all states of two machines, x86-64 and a weaker one.
Each protocol is also explored with one mend taken out: the explorer must find what that loses.
`test_lock_models.py` has those that wait.
"""

from __future__ import annotations

import pytest

from tests.support.core.orders import TSO, WEAK, Step, explore, without

FENCE: Step = ("fence",)


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
