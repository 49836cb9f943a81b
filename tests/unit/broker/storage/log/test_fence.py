"""What a log remembers of its failures: the first reason, and the lowest offset from which it must be checked."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from kafkaprod.broker.storage.directory_health import ALWAYS_USABLE
from kafkaprod.broker.storage.errors import LogError, PartitionFencedError
from kafkaprod.broker.storage.log.fence import Fence
from kafkaprod.errors import CorruptDataError


class Log:
    """A log whose disk fails when it has synced so much."""

    def __init__(self) -> None:
        self.synced = 0
        self.fence = Fence("orders-0", lambda: self.synced, ALWAYS_USABLE)

    def fail(self, synced: int, kind: str) -> None:
        self.synced = synced
        with pytest.raises((LogError, PartitionFencedError)):
            getattr(self, kind)()

    def write(self) -> NoReturn:
        def fail() -> NoReturn:
            raise OSError(errno.EIO, "write")

        self.fence.guard_write(fail)

    def sync(self) -> NoReturn:
        def fail() -> NoReturn:
            raise PartitionFencedError(f"sync at {self.synced}")

        self.fence.guard_write(fail)

    def shorten(self) -> NoReturn:
        def fail() -> NoReturn:
            raise OSError(errno.EIO, f"cut at {self.synced}")

        self.fence.guard_shortening(fail)

    def read(self) -> NoReturn:
        def fail() -> NoReturn:
            raise CorruptDataError(f"damage at {self.synced}")

        self.fence.guard_read(fail)


@pytest.mark.parametrize(
    ("failures", "limit"),
    [
        ([(7, "write")], 7),
        ([(7, "write"), (9, "write")], 7),
        ([(7, "write"), (9, "write"), (5, "write"), (30, "write")], 5),
        ([(7, "write"), (9, "sync")], 7),
        ([(7, "sync"), (9, "write")], 7),
        ([(7, "shorten"), (9, "sync")], 7),
        ([(9, "read")], 0),
        ([(9, "read"), (9, "write")], 0),
        ([(7, "write"), (9, "read"), (9, "sync")], 0),
    ],
)
def test_the_next_start_checks_from_the_lowest_offset_that_was_in_doubt(
    failures: list[tuple[int, str]], limit: int
) -> None:
    log = Log()
    for synced, kind in failures:
        log.fail(synced, kind)
    assert log.fence.recovery_limit == limit


@pytest.mark.parametrize("later", ["sync", "shorten", "read", "close"])
@pytest.mark.parametrize(("first", "reason"), [("sync", "sync at 3"), ("read", "damage at 3"), ("close", "closed")])
def test_the_first_reason_to_take_no_appends_stays(first: str, reason: str, later: str) -> None:
    log = Log()
    for synced, kind in ((3, first), (5, later)):
        if kind == "close":
            log.fence.close("closed" if synced == 3 else "deleted")
        else:
            log.fail(synced, kind)
    assert log.fence.reason == reason
    with pytest.raises(PartitionFencedError, match=reason):
        log.fence.check()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_writes_that_changed_nothing_leave_the_log_in_use(count: int) -> None:
    log = Log()
    for _ in range(count):
        log.fail(3, "write")
    log.fence.check()
