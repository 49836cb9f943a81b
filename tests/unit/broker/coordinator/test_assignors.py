"""Server-side assignors: everything is assigned once, to subscribers, evenly, with few moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.broker.coordinator.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from kafkaprod.broker.coordinator.consumer_member import NOTHING, Assignment
from tests.support.broker.consumer_member import partitions, topic_id

COUNTS = {topic_id(name): count for name, count in {"a": 1, "b": 4, "c": 7}.items()}
subscriptions = st.dictionaries(
    st.sampled_from("stuvwxyz"), st.frozensets(st.sampled_from(sorted(COUNTS, key=str))), min_size=1
)


def subscribers(wanted: dict[str, frozenset[object]], current: dict[str, Assignment]) -> dict[str, Subscriber]:
    return {
        member_id: Subscriber(None, topic_ids, current.get(member_id, NOTHING))  # type: ignore[arg-type]
        for member_id, topic_ids in wanted.items()
    }


@given(subscriptions, subscriptions, st.sampled_from(sorted(ASSIGNORS)))
def test_each_partition_has_one_owner_that_wants_it(
    before: dict[str, frozenset[object]], after: dict[str, frozenset[object]], name: str
) -> None:
    targets = ASSIGNORS[name](subscribers(before, {}), COUNTS)
    targets = ASSIGNORS[name](subscribers(after, targets), COUNTS)
    assert targets.keys() == after.keys()
    given_out = [partition for target in targets.values() for partition in target]
    assert len(given_out) == len(set(given_out))
    wanted = frozenset().union(*after.values())
    assert len(given_out) == sum(count for topic, count in COUNTS.items() if topic in wanted)
    assert all(partition.topic_id in after[member_id] for member_id in after for partition in targets[member_id])


@given(subscriptions, subscriptions)
def test_uniform_leaves_no_move_that_would_make_it_more_even(
    before: dict[str, frozenset[object]], after: dict[str, frozenset[object]]
) -> None:
    targets = assign_uniform(subscribers(after, assign_uniform(subscribers(before, {}), COUNTS)), COUNTS)
    for owner, target in targets.items():
        for partition in target:
            takers = [member_id for member_id in after if partition.topic_id in after[member_id]]
            assert all(len(target) - len(targets[taker]) <= 1 for taker in takers), owner
    assert assign_uniform(subscribers(after, targets), COUNTS) == targets


def test_uniform_moves_no_more_than_a_new_member_needs() -> None:
    both = frozenset({topic_id("b"), topic_id("c")})
    first = assign_uniform(subscribers({"x": both, "y": both}, {}), COUNTS)
    second = assign_uniform(subscribers({"x": both, "y": both, "z": both}, first), COUNTS)
    assert sorted(map(len, second.values())) == [3, 4, 4]
    assert second["x"] <= first["x"]
    assert second["y"] <= first["y"]


def test_range_gives_runs_in_the_order_of_members_static_ones_first() -> None:
    b = frozenset({topic_id("b")})
    members = {name: Subscriber(instance, b, NOTHING) for name, instance in (("x", None), ("y", "2"), ("z", "1"))}
    targets = assign_range(members, COUNTS)
    assert targets == {"z": partitions("b", 0, 1), "y": partitions("b", 2), "x": partitions("b", 3)}
