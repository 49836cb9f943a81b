"""A group of the consumer protocol: epochs, targets, revocation before assignment, static members, time, records."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.consumer_member import NOTHING, STATIC_LEAVE_EPOCH, MemberState
from kafkaprod.broker.coordinator.regex_subscriptions import Topics
from kafkaprod.broker.coordinator.topic_regex import TopicRegex
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.broker.consumer_member import REBALANCE_MS, Client, partitions, topic_id, topics

SESSION_MS = 45_000
ORDERS = topics({"orders": 4})


def match(pattern: str, existing: Topics) -> frozenset[str]:
    regex = TopicRegex(pattern)
    return frozenset(name for name in existing if regex.matches(name))


def new_group(**options: Any) -> ConsumerGroup:
    return ConsumerGroup("g", ConsumerGroupConfig(**options), match)


def settle(group: ConsumerGroup, *clients: Client, existing: Topics = ORDERS, now_ms: int = 0) -> None:
    for _ in range(6):
        for client in clients:
            client.beat(group, existing, now_ms)
            client.finish_revocation()


def refused(code: ErrorCode) -> pytest.RaisesExc[RequestRefusedError]:
    return pytest.raises(RequestRefusedError, check=lambda error: error.code == code)


def test_first_member_gets_everything_at_once() -> None:
    group = new_group()
    assert group.state_name == "Empty"
    client = Client("a", {"orders", "not there"})
    result = client.beat(group, ORDERS)
    assert (result.member_epoch, result.heartbeat_interval_ms) == (1, 5_000)
    assert result.assignment == partitions("orders", 0, 1, 2, 3)
    assert (group.epoch, group.target_epoch, group.state_name) == (1, 1, "Stable")


def test_second_member_waits_until_the_first_has_given_up() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    a.beat(group, ORDERS)
    assert b.beat(group, ORDERS).assignment == NOTHING
    assert group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    a.beat(group, ORDERS)
    assert (a.epoch, len(a.revoking), group.state_name) == (1, 2, "Reconciling")
    a.beat(group, ORDERS)  # it still owns them: nothing changes
    assert (a.epoch, group.members["a"].state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert b.beat(group, ORDERS).assignment == NOTHING
    a.finish_revocation()
    assert a.beat(group, ORDERS).member_epoch == 2
    assert b.beat(group, ORDERS).assignment == partitions("orders", 0, 1, 2, 3) - a.owned
    assert group.state_name == "Stable"


def test_short_heartbeat_is_answered_with_changes_only() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    a.beat(group, ORDERS)
    short = a.request()._replace(rebalance_timeout_ms=-1, topic_names=None, owned=None)
    assert group.heartbeat(short, ORDERS, 0).assignment is None
    b.beat(group, ORDERS)
    changed = group.heartbeat(short, ORDERS, 0).assignment
    assert changed is not None
    assert len(changed) == 2
    # Without word of what it owns it has given up nothing.
    assert group.heartbeat(short, ORDERS, 0).member_epoch == 1


def test_epochs_of_the_past_and_the_future_are_fenced() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    settle(group, a, b)
    assert a.epoch == 2
    a.beat(group, ORDERS, member_epoch=1)  # the answer with epoch 2 may have been lost
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        a.beat(group, ORDERS, member_epoch=1, owned=partitions("orders", 0, 1, 2, 3))
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        a.beat(group, ORDERS, member_epoch=3)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        Client("c", {"orders"}).beat(group, ORDERS, member_epoch=2)
    assert group.check_member_epoch("a", 2) is ErrorCode.NONE
    assert group.check_member_epoch("a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_member_epoch("c", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_joins_again_keeps_its_epoch_and_partitions() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    settle(group, a, b)
    epochs, had = (a.epoch, group.epoch), a.owned
    a.begin_again()
    assert a.beat(group, ORDERS).assignment == had
    assert (a.epoch, group.epoch) == epochs
    assert group.members["a"].previous_epoch == 1


def test_member_that_joins_again_has_given_up_what_it_was_to_give_up() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    a.beat(group, ORDERS)
    b.beat(group, ORDERS)
    a.beat(group, ORDERS)
    assert group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    a.begin_again()
    assert (a.beat(group, ORDERS).member_epoch, len(a.owned)) == (2, 2)
    assert len(b.beat(group, ORDERS).assignment or NOTHING) == 2


def test_fenced_member_begins_again_under_its_id() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    settle(group, a, b)
    had = a.owned
    a.begin_again()
    assert a.beat(group, ORDERS).assignment == had
    assert group.epoch == 2  # no other member is disturbed


def test_member_that_leaves_frees_its_partitions() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    settle(group, a, b)
    assert a.leave(group).member_epoch == -1
    assert (group.epoch, group.state_name) == (3, "Assigning")
    assert b.beat(group, ORDERS).assignment == partitions("orders", 0, 1, 2, 3)
    b.leave(group)
    assert group.state_name == "Empty"


def test_session_and_revocation_end_in_time() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    a.beat(group, ORDERS)
    b.beat(group, ORDERS)
    a.beat(group, ORDERS, 1_000)
    assert group.next_deadline_ms() == 1_000 + REBALANCE_MS
    a.beat(group, ORDERS, 20_000)  # alive, but it gives nothing up: the time does not begin again
    b.beat(group, ORDERS, 20_000)
    group.on_time(1_000 + REBALANCE_MS)
    assert list(group.members) == ["b"]
    group.on_time(20_000 + SESSION_MS - 1)
    assert list(group.members) == ["b"]
    group.on_time(20_000 + SESSION_MS)
    assert (group.state_name, group.next_deadline_ms()) == ("Empty", None)


def test_static_member_comes_back_to_what_it_had() -> None:
    group = new_group()
    a, b = Client("a", {"orders"}, "instance"), Client("b", {"orders"})
    settle(group, a, b)
    had, epoch = a.owned, group.epoch
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        Client("a2", {"orders"}, "instance").beat(group, ORDERS)
    assert a.leave(group, for_restart=True).member_epoch == STATIC_LEAVE_EPOCH
    assert b.beat(group, ORDERS).assignment == partitions("orders", 0, 1, 2, 3) - had
    again = Client("a2", {"orders"}, "instance")
    assert again.beat(group, ORDERS).assignment == had
    assert (group.epoch, set(group.members)) == (epoch, {"a2", "b"})
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        a.beat(group, ORDERS, member_epoch=2)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        Client("x", {"orders"}, "other").beat(group, ORDERS, member_epoch=2)
    group.fence(group.static_member("instance"))
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        group.static_member("instance")


def test_static_member_that_stays_away_is_removed() -> None:
    group = new_group()
    a = Client("a", {"orders"}, "instance")
    a.beat(group, ORDERS)
    a.leave(group, for_restart=True)
    group.on_time(SESSION_MS)
    assert group.state_name == "Empty"
    Client("a2", {"orders"}, "instance").beat(group, ORDERS)


def test_instance_that_changes_its_name_leaves_none_behind() -> None:
    group = new_group()
    a = Client("a", {"orders"}, "one")
    a.beat(group, ORDERS)
    a.begin_again()
    a.instance_id = "two"
    a.beat(group, ORDERS)
    Client("b", {"orders"}, "one").beat(group, ORDERS)
    assert set(group.members) == {"a", "b"}


def test_new_partitions_and_topics_make_a_new_target() -> None:
    group = new_group()
    a = Client("a", {"orders", "later"})
    a.beat(group, ORDERS)
    grown = topics({"orders": 5})
    assert a.beat(group, grown).assignment == partitions("orders", 0, 1, 2, 3, 4)
    more = topics({"orders": 5, "later": 1, "other": 1})
    assert a.beat(group, more).assignment == partitions("orders", 0, 1, 2, 3, 4) | partitions("later", 0)
    assert group.epoch == 3
    unrelated = topics({"orders": 5, "later": 1, "other": 9})
    a.beat(group, unrelated)
    assert group.epoch == 3
    assert a.beat(group, topics({"later": 1})).assignment == partitions("later", 0)


def test_regular_expression_follows_topics() -> None:
    group = new_group()
    a = Client("a", set(), regex="ord.*")
    assert a.beat(group, topics({"orders": 1, "pay": 1})).assignment == partitions("orders", 0)
    both = topics({"orders": 1, "pay": 1, "ordinary": 1})
    assert a.beat(group, both).assignment == partitions("orders", 0) | partitions("ordinary", 0)
    a.regex, a.names = "", frozenset({"pay"})
    a.beat(group, both)
    a.finish_revocation()
    assert a.beat(group, both).assignment == partitions("pay", 0)
    assert group.subscribed_topics() == {"pay"}


def test_most_wanted_assignor_is_used() -> None:
    group = new_group()
    two = topics({"x": 3, "y": 3})
    a, b = Client("a", {"x", "y"}), Client("b", {"x", "y"})
    a.beat(group, two, assignor="range")
    b.beat(group, two, assignor="range")
    assert group.assignor == "range"
    assert group.targets["a"] == partitions("x", 0, 1) | partitions("y", 0, 1)


def test_full_group_takes_no_more_members() -> None:
    group = new_group(max_size=1)
    Client("a", {"orders"}).beat(group, ORDERS)
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        Client("b", {"orders"}).beat(group, ORDERS)
    assert list(group.members) == ["a"]


def test_group_of_records_is_the_same_group() -> None:
    group = new_group()
    a, b, c = Client("a", {"orders"}, "instance"), Client("b", set(), regex="ord.*"), Client("c", {"orders"})
    records: dict[bytes, bytes] = {}
    for client in (a, b, a, c, b):
        client.beat(group, ORDERS)
    a.leave(group, for_restart=True)
    c.leave(group)
    for key, value in group.take_changes():
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value
    copy = new_group()
    copy.restore(records, 0)
    assert (copy.epoch, copy.target_epoch, copy.state_name) == (group.epoch, group.target_epoch, group.state_name)
    assert copy.members == group.members
    assert copy.targets == group.targets
    assert group.take_changes() == []
    a2 = Client("a2", {"orders"}, "instance")
    assert a2.beat(copy, ORDERS).assignment == group.members["a"].assigned
    assert topic_id("orders") == next(iter(a2.owned)).topic_id
