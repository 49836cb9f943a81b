"""Flush policies and shared syncs."""

from __future__ import annotations

import pytest

from kafkaprod.broker.storage.errors import PartitionFencedError
from kafkaprod.broker.storage.log.group_commit import FlushPolicy, GroupCommit, each, interval, never, parse_policy
from kafkaprod.errors import ConfigError


@pytest.mark.parametrize(("text", "policy"), [("each", each()), ("never", never()), ("interval:200", interval(200))])
def test_policy_is_parsed(text: str, policy: FlushPolicy) -> None:
    assert parse_policy(text) == policy
    assert policy.syncs_before_ack == (text == "each")


@pytest.mark.parametrize("text", ["", "always", "interval", "interval:", "interval:0", "interval:-1", "each:1"])
def test_unknown_policy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_policy(text)


def test_data_that_is_on_the_disk_needs_no_sync() -> None:
    commits = GroupCommit(10)
    commits.wait_for(10, lambda: pytest.fail("synced"))
    commits.advance(20)
    commits.wait_for(20, lambda: pytest.fail("synced"))


def test_sync_covers_what_it_says() -> None:
    commits = GroupCommit(0)
    commits.wait_for(3, lambda: 7)
    assert commits.synced_offset == 7


def test_failed_sync_is_never_repeated() -> None:
    commits, calls = GroupCommit(0), []

    def fail() -> int:
        calls.append(1)
        raise OSError(5, "Input/output error")

    for _ in range(3):
        with pytest.raises(PartitionFencedError):
            commits.wait_for(3, fail)
    assert len(calls) == 1
    commits.wait_for(0, fail)  # what was synced before stays synced


@pytest.mark.parametrize("is_cut_while_it_syncs", [False, True])
def test_data_that_was_cut_off_is_not_waited_for(is_cut_while_it_syncs: bool) -> None:
    """A broker that hands its partitions over cuts its logs while the flush timer runs; no record may come then."""
    commits, calls = GroupCommit(0), []
    if not is_cut_while_it_syncs:
        commits.retreat(4)

    def sync() -> int:
        calls.append(1)
        assert len(calls) < 5, "it syncs for ever"
        if is_cut_while_it_syncs and len(calls) == 1:
            commits.retreat(4)
        return 4

    commits.wait_for(10, sync)
    assert commits.synced_offset == 4


def test_sync_that_a_truncation_overtook_covers_nothing_new() -> None:
    commits, calls = GroupCommit(10), []

    def sync() -> int:
        calls.append(1)
        if len(calls) == 1:
            commits.retreat(4)  # the log is cut while the disk works
            return 20
        return 12

    commits.wait_for(12, sync)
    assert (commits.synced_offset, len(calls)) == (12, 2)


def test_unexpected_exception_of_a_sync_leaves_no_waiter_behind() -> None:
    commits = GroupCommit(0)
    with pytest.raises(ZeroDivisionError):
        commits.wait_for(1, lambda: 1 // 0)
    commits.wait_for(1, lambda: 1)
