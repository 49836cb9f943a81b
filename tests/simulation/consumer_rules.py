"""Rules of groups of the consumer protocol (KIP-848), each with a way to switch it off; see `transaction_rules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.consumer_groups import ConsumerGroups
from kafkaprod.broker.coordinator.consumer_member import NOTHING, ConsumerMember
from kafkaprod.broker.coordinator.group_coordinator import GroupCoordinator
from kafkaprod.broker.coordinator.member_timers import MemberTimers
from kafkaprod.broker.coordinator.offsets import OffsetTable
from kafkaprod.protocol.error_codes import ErrorCode
from tests.simulation.rules import replaced


def _gives_up_at_once(reconciled: Callable[..., ConsumerMember]) -> Callable[..., ConsumerMember]:
    def wrong(self: ConsumerMember, target_epoch: int, target: Any, owned: Any, is_free: Any) -> ConsumerMember:
        return reconciled(self, target_epoch, target, NOTHING, is_free)

    return wrong


def _without_timers(restore: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: ConsumerGroup, records: Any, now_ms: int) -> None:
        restore(self, records, now_ms)
        self.timers = MemberTimers()

    return wrong


def _takes_any_epoch(check: Callable[..., ErrorCode]) -> Callable[..., ErrorCode]:
    def wrong(self: GroupCoordinator, group_id: str, *arguments: Any) -> ErrorCode:
        if self.get_consumer(group_id) is not None:
            return ErrorCode.NONE
        return check(self, group_id, *arguments)

    return wrong


def _keeps_epoch(self: ConsumerGroup, member: ConsumerMember) -> None:
    self._remove(member)


CONSUMER_RULES: dict[str, Callable[[], Any]] = {
    "a consumer group refuses the commit of an older epoch": lambda: replaced(
        GroupCoordinator, "check_commit", _takes_any_epoch(GroupCoordinator.check_commit)
    ),
    "a partition is given when others have given it up": lambda: replaced(
        ConsumerGroup, "_is_free_for", lambda *_: lambda _: True
    ),
    "a member loses a partition when it says that it has given it up": lambda: replaced(
        ConsumerMember, "reconciled", _gives_up_at_once(ConsumerMember.reconciled)
    ),
    "a consumer group keeps its epochs from coordinator to coordinator": lambda: replaced(
        ConsumerGroup, "restore", lambda *_: None
    ),
    "a coordinator watches the members of the one before": lambda: replaced(
        ConsumerGroup, "restore", _without_timers(ConsumerGroup.restore)
    ),
    "a consumer that is silent leaves its group": lambda: replaced(ConsumerGroups, "on_time", lambda *_: None),
    "what a member leaves behind is given to others": lambda: replaced(ConsumerGroup, "fence", _keeps_epoch),
    "a transaction commits the offsets of a member in its epoch": lambda: replaced(
        GroupCoordinator, "check_transactional_commit", lambda *_: ErrorCode.NONE
    ),
    "a member waits for offsets that a transaction may change": lambda: replaced(
        OffsetTable, "is_pending", lambda *_: False
    ),
}
"""Rules of groups whose members are given partitions by their coordinator."""
