"""The protocols of the core that wait: lock, references, waiters for memory, fork; see test_protocol_models.py."""

from __future__ import annotations

import pytest

from tests.support.core.orders import TSO, WEAK, Programs, Step, assembled, explore

MACHINES = pytest.mark.parametrize("machine", [TSO, WEAK])

SWAP: tuple[Step, ...] = (("swap", "held", 1),)


def locker(number: int, *, takes: tuple[Step, ...] = SWAP, release: str = "publish", is_timed: bool = True) -> Programs:
    """machine.h: kp_mutex_lock(), a count that the lock guards, kp_mutex_unlock(). Without what only saves time."""
    asleep = f"asleep_{number}"
    return (
        assembled(
            *takes,
            ("unless", "held", 0, "slow"),
            ("goto", "inside"),
            ("at", "slow"),
            ("publish", "awaited", 1),
            *takes,
            ("unless", "held", 0, "sleep"),
            ("goto", "inside"),
            ("at", "sleep"),
            ("park", asleep),
            ("swap", asleep, 0) if is_timed else ("until", asleep, 0),  # a timeout may end the sleep at any time
            ("goto", "slow"),
            ("at", "inside"),
            ("load", "count"),
            ("bump", "count", 1),
            (release, "held", 0),
            ("load", "awaited"),
            ("unless", "awaited", 1, "end"),
            ("store", "awaited", 0),
            ("swap", f"asleep_{1 - number}", 0),
            ("at", "end"),
        ),
    )


def count_is_short(memory: dict[str, int], _: list[dict[str, int]]) -> bool:
    """Whether two threads were inside at once, or one never came in."""
    return memory["count"] != 2


@MACHINES
def test_lock_lets_one_in_and_each_at_last(machine: str) -> None:
    states, wrong = explore(machine, locker(0) + locker(1), count_is_short)
    assert wrong == 0
    assert states > 1000


@MACHINES
def test_lock_taken_by_load_and_store_would_let_two_in(machine: str) -> None:
    takes: tuple[Step, ...] = (("load", "held"), ("store", "held", 1))
    assert explore(machine, locker(0, takes=takes) + locker(1, takes=takes), count_is_short)[1] > 0


def test_lock_released_by_a_plain_store_would_show_an_old_count() -> None:
    programs = locker(0, release="store") + locker(1, release="store")
    assert explore(WEAK, programs, count_is_short)[1] > 0
    assert explore(TSO, programs, count_is_short)[1] == 0  # what x86-64 hides


@MACHINES
def test_lock_without_its_timeout_would_let_one_sleep_for_ever(machine: str) -> None:
    """Unlock looks for waiters without a fence behind its store: lock.pxd says why."""
    programs = locker(0, is_timed=False) + locker(1, is_timed=False)
    assert explore(machine, programs, count_is_short)[1] > 0


BIAS = 8  # OPEN_BIAS
COUNTED: tuple[Step, ...] = (("add", "references", -1),)
RELEASE: tuple[Step, ...] = (("unless", "references", 0, "end"), ("swap", "is_freed", 1), ("add", "frees", 1))


def appender(drop: tuple[Step, ...] = COUNTED) -> Programs:
    """batch.pxd: batch_hold() under the partition's lock; batch.pyx: batch_release() by the future, without it."""
    return (
        assembled(
            ("lock", "lock", 1),
            ("load", "is_closed"),
            ("unless", "is_closed", 0, "late"),
            ("load", "holds"),
            ("bump", "holds", 1),
            ("publish", "lock", 0),
            ("load", "is_freed"),
            *drop,
            *RELEASE,
            ("goto", "end"),
            ("at", "late"),
            ("publish", "lock", 0),
            ("at", "end"),
        ),
    )


def closer(bias: int = BIAS, drop: tuple[Step, ...] = COUNTED) -> Programs:
    """batch.pyx: batch_move() from OPEN under the partition's lock, then the sender's own reference."""
    return (
        assembled(
            ("lock", "lock", 1),
            ("load", "is_freed"),
            ("load", "holds"),
            ("add_read", "references", "holds", -bias),
            ("store", "is_closed", 1),
            ("publish", "lock", 0),
            *drop,
            *RELEASE,
            ("at", "end"),
        ),
    )


def is_not_freed_once(memory: dict[str, int], read: list[dict[str, int]]) -> bool:
    return memory["frees"] != 1 or any(each.get("is_freed") for each in read)


@MACHINES
def test_batch_is_freed_once_and_behind_all_use(machine: str) -> None:
    programs = appender() + appender() + closer()
    states, wrong = explore(machine, programs, is_not_freed_once, {"references": 1 + BIAS})
    assert wrong == 0
    assert states > 500


@MACHINES
def test_open_batch_without_its_bias_would_be_freed_under_the_sender(machine: str) -> None:
    programs = appender() + appender() + closer(bias=0)
    assert explore(machine, programs, is_not_freed_once, {"references": 1})[1] > 0


@MACHINES
def test_references_counted_by_load_and_store_would_be_miscounted(machine: str) -> None:
    drop: tuple[Step, ...] = (("load", "references"), ("bump", "references", -1), ("load", "references"))
    programs = appender(drop) + closer(drop=drop)
    assert explore(machine, programs, is_not_freed_once, {"references": 1 + BIAS})[1] > 0


def waiter(*, tries: bool = True) -> Programs:
    """intake/records.py: with_memory(); buffer_pool.pyx: enqueue_waiter()."""
    attempt: tuple[Step, ...] = (
        ("lock", "lock", 1),
        ("load", "free"),
        ("store", "is_told", 0),
        ("publish", "lock", 0),
    )
    return (
        assembled(
            ("swap", "has_waker", 1),
            ("lock", "lock", 1),
            ("store", "in_line", 1),
            ("publish", "lock", 0),
            *(attempt if tries else (("load", "has_waker"),)),
            ("at", "end"),
        ),
    )


GIVE: tuple[Step, ...] = (("lock", "lock", 1), ("store", "free", 1), ("publish", "lock", 0))
WAKE: tuple[Step, ...] = (
    ("lock", "lock", 1),
    ("load", "in_line"),
    ("unless", "in_line", 1, "unlock"),
    ("store", "is_told", 1),
    ("at", "unlock"),
    ("publish", "lock", 0),
    ("unless", "in_line", 1, "end"),
    ("observe", "has_waker"),
    ("unless", "has_waker", 1, "end"),
    ("swap", "is_woken", 1),
    ("at", "end"),
)


def waits_beside_free_memory(memory: dict[str, int], read: list[dict[str, int]]) -> bool:
    return not read[0].get("free") and not memory["is_woken"]


@MACHINES
def test_waiter_for_memory_finds_it_or_is_woken(machine: str) -> None:
    states, wrong = explore(machine, (*waiter(), assembled(*GIVE, *WAKE)), waits_beside_free_memory)
    assert wrong == 0
    assert states > 50


@MACHINES
@pytest.mark.parametrize("planted", ["no try behind the line", "wakes before it gives"])
def test_waiter_would_wait_beside_free_memory(machine: str, planted: str) -> None:
    sender = assembled(*GIVE, *WAKE)
    if planted == "wakes before it gives":
        sender = assembled(*WAKE, *GIVE)
    programs = (*waiter(tries=planted == "wakes before it gives"), sender)
    assert explore(machine, programs, waits_beside_free_memory)[1] > 0


def enqueued(*, waker_first: bool, tries: bool) -> Programs:
    """buffer_pool.pyx: enqueue_waiter(); then with_memory() wakes the sender, and tries."""
    line: tuple[Step, ...] = (("lock", "lock", 1), ("store", "in_line", 1), ("publish", "lock", 0))
    waker: tuple[Step, ...] = (("swap", "has_waker", 1),)
    attempt: tuple[Step, ...] = (("lock", "lock", 1), ("load", "free"), ("store", "is_told", 0), ("publish", "lock", 0))
    queues = waker + line if waker_first else line + waker
    return (assembled(*queues, ("swap", "asks", 1), *(attempt if tries else ())),)


def turn(number: int) -> tuple[Step, ...]:
    """buffer_pool.pyx: wake_waiters(), where all that is in line can have its bytes; none is told twice."""
    return (
        ("lock", "lock", 1),
        ("load", "in_line"),
        ("unless", "in_line", 1, f"unlock_{number}"),
        ("load", "is_told"),
        ("unless", "is_told", 0, f"unlock_{number}"),
        ("store", "is_told", 1),
        ("publish", "lock", 0),
        ("observe", "has_waker"),
        ("unless", "has_waker", 1, f"end_{number}"),
        ("swap", "is_woken", 1),
        ("goto", f"end_{number}"),
        ("at", f"unlock_{number}"),
        ("publish", "lock", 0),
        ("at", f"end_{number}"),
    )


@MACHINES
@pytest.mark.parametrize(
    ("waker_first", "tries", "is_lost"), [(True, True, False), (True, False, False), (False, False, True)]
)
def test_waiter_whose_waker_stands_behind_the_line_would_be_told_and_not_woken(
    machine: str, waker_first: bool, tries: bool, is_lost: bool
) -> None:
    """The sender has two turns: one at any time, one that the waiter asks for. A try behind them hides the loss."""
    sender = assembled(*GIVE, *turn(1), ("until", "asks", 1), *turn(2))
    programs = (*enqueued(waker_first=waker_first, tries=tries), sender)
    states, lost = explore(machine, programs, waits_beside_free_memory)
    assert (lost > 0) == is_lost
    assert states > 100


def child(*, looks: bool) -> Programs:
    """forks.py, then blocks.pyx: row_runs() of a result, in the child that another thread's block does not reach."""
    guard: tuple[Step, ...] = (("load", "is_abandoned"), ("unless", "is_abandoned", 0, "end")) if looks else ()
    return (
        assembled(
            ("fork",),
            ("store", "is_abandoned", 1),
            *guard,
            ("lock", "lock", 1),
            ("publish", "lock", 0),
            ("at", "end"),
            ("swap", "has_ended", 1),
        ),
    )


@MACHINES
@pytest.mark.parametrize(("looks", "hangs"), [(True, False), (False, True)])
def test_child_that_does_not_look_whether_it_is_one_would_wait_for_ever(machine: str, looks: bool, hangs: bool) -> None:
    block: tuple[Step, ...] = (("lock", "lock", 1), ("store", "rows", 1), ("publish", "lock", 0))

    def never_ends(memory: dict[str, int], _: list[dict[str, int]]) -> bool:
        return memory["has_ended"] == 0

    assert (explore(machine, (block, *child(looks=looks)), never_ends)[1] > 0) == hangs
