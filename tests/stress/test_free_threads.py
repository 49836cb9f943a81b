"""Threads against each other, a short piece of it; longer: `python -m tests.campaigns.free_threads`."""

from __future__ import annotations

import pytest

from tests.campaigns.free_threads import PROGRAMS
from tests.campaigns.threads_in_logs import COUNT, check_log
from tests.stress.scale import scaled

THREADS = 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_find_no_fault(name: str) -> None:
    assert PROGRAMS[name](scaled(1, 600), THREADS)


def whole_log() -> list[tuple[int, bytes | None, bytes]]:
    """Two threads' records in three partitions, one thread's without keys."""
    with_key = [(number % 3, b"0", b"%d" % number) for number in range(COUNT)]
    return [*with_key, *((number % 3, None, b"1:%d" % number) for number in range(COUNT))]


def test_a_log_that_is_whole_is_taken() -> None:
    check_log(iter(whole_log()), 2)


@pytest.mark.parametrize(
    ("said", "place", "instead"),
    [
        ("missing", 7, []),
        ("twice", 7, [(1, b"0", b"7"), (2, b"0", b"7")]),
        ("behind", 7, [(1, b"0", b"10"), (1, b"0", b"7")]),
    ],
)
def test_a_log_that_lacks_doubles_or_swaps_a_record_is_refused(
    said: str, place: int, instead: list[tuple[int, bytes | None, bytes]]
) -> None:
    log = whole_log()
    log[place : place + 1] = instead
    with pytest.raises(AssertionError, match=said):
        check_log(iter(log), 2)
