import logging
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthorizationError, BrokerError, ConnectionLostError
from kafkaprod.metadata import Metadata
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkaprod.structs import Node
from tests.support.config import unchecked_config

VERSION = 13
BACKOFF_MS = 100
LOST = ConnectionLostError("cut")
IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("a", "b", "c")}
OTHER_ID = uuid.uuid4()
SAME: Any = object()


def topic(
    name: str,
    leaders: Sequence[int] = (1,),
    epochs: Sequence[int] | None = None,
    *,
    error: int = 0,
    topic_id: uuid.UUID | None = SAME,
    partition_error: int = 0,
) -> MetadataResponseTopic:
    epochs = [0] * len(leaders) if epochs is None else epochs
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=IDS[name] if topic_id is SAME else topic_id,
        partitions=[
            MetadataResponsePartition(
                error_code=partition_error if leader < 0 else 0, partition_index=i, leader_id=leader, leader_epoch=epoch
            )
            for i, (leader, epoch) in enumerate(zip(leaders, epochs, strict=True))
        ],
    )


def answer(*topics: MetadataResponseTopic, nodes: Sequence[int] = (1, 2, 3), **fields: Any) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=i, host=f"h{i}", port=9092, rack=f"r{i}") for i in nodes]
    values: dict[str, Any] = {"cluster_id": "cluster", "controller_id": 1} | fields
    return MetadataResponse(brokers=brokers, topics=list(topics), **values)


def make(**settings: Any) -> Metadata:
    return Metadata(unchecked_config(**settings), random=lambda: 0.5)


def exchange(metadata: Metadata, now_ms: int, response: MetadataResponse, version: int = VERSION) -> list[str | None]:
    """Ask and answer; return the names asked for."""
    assert metadata.next_refresh_ms(now_ms) == 0
    request = metadata.make_request(now_ms)
    metadata.on_response(response, version, now_ms)
    assert request.topics is not None
    return [each.name for each in request.topics]


def knowing(*topics: MetadataResponseTopic, **settings: Any) -> Metadata:
    """Metadata at time 0 that has just learned `topics`."""
    metadata = make(**settings)
    for each in topics:
        metadata.add_topic(str(each.name), 0)
    exchange(metadata, 0, answer(*topics))
    metadata.take_changes()
    return metadata


def leaders(metadata: Metadata, name: str = "a") -> tuple[int, ...]:
    return metadata.snapshot.topics[name].leaders


# -- asking ------------------------------------------------------------------------------------------------------------


def test_first_request_is_due_at_once_and_asks_for_no_topics() -> None:
    metadata = make()
    assert metadata.next_refresh_ms(0) == 0
    assert metadata.make_request(0).topics == []


def test_new_topic_is_asked_for_at_once_and_alone() -> None:
    metadata = knowing(topic("a"))
    assert metadata.next_refresh_ms(1) > BACKOFF_MS
    metadata.add_topic("b", 1)
    assert metadata.next_refresh_ms(1) == 0
    assert exchange(metadata, 1, answer(topic("b"))) == ["b"]
    assert set(metadata.snapshot.topics) == {"a", "b"}


def test_partial_refresh_does_not_answer_a_pending_full_one() -> None:
    metadata = knowing(topic("a"))
    metadata.add_topic("b", 1)
    partial = metadata.make_request(1)
    assert [each.name for each in partial.topics or []] == ["b"]
    metadata.request_update()
    metadata.on_response(answer(topic("b")), VERSION, 2)
    assert metadata.next_refresh_ms(2) == BACKOFF_MS
    assert exchange(metadata, 2 + BACKOFF_MS, answer(topic("a"), topic("b"))) == ["a", "b"]


def test_only_one_request_is_in_flight() -> None:
    metadata = make()
    metadata.make_request(0)
    metadata.add_topic("a", 0)
    metadata.request_update()
    assert metadata.next_refresh_ms(10**9) > 10**9


def test_topic_added_while_a_request_is_in_flight_is_asked_for_next() -> None:
    metadata = make()
    metadata.make_request(0)
    metadata.add_topic("a", 1)
    metadata.on_response(answer(), VERSION, 5)
    assert metadata.next_refresh_ms(5) == BACKOFF_MS
    assert exchange(metadata, 5 + BACKOFF_MS, answer(topic("a"))) == ["a"]


def test_update_waits_for_the_retry_backoff() -> None:
    metadata = knowing(topic("a"))
    metadata.request_update()
    assert metadata.next_refresh_ms(0) == BACKOFF_MS
    assert metadata.next_refresh_ms(60) == BACKOFF_MS - 60
    assert metadata.next_refresh_ms(BACKOFF_MS) == 0


def test_known_topic_that_is_wanted_again_waits_for_the_backoff() -> None:
    metadata = knowing(topic("a"))
    metadata.add_topic("a", 1)
    assert metadata.next_refresh_ms(1) == BACKOFF_MS - 1
    assert exchange(metadata, BACKOFF_MS, answer(topic("a"))) == ["a"]


def test_aged_metadata_is_refreshed_in_full() -> None:
    metadata = knowing(topic("a"), topic("b"), metadata_max_age_ms=1000)
    assert metadata.next_refresh_ms(0) == 1000
    assert metadata.age_ms(400) == 400
    assert exchange(metadata, 1000, answer(topic("a"), topic("b"))) == ["a", "b"]
    assert metadata.next_refresh_ms(1000) == 1000


def test_partial_refresh_does_not_make_metadata_young() -> None:
    metadata = knowing(topic("a"), metadata_max_age_ms=1000)
    metadata.add_topic("b", 900)
    exchange(metadata, 900, answer(topic("b")))
    assert metadata.age_ms(900) == 900


def test_age_is_unknown_before_the_first_answer() -> None:
    assert make().age_ms(5) is None


def test_auto_creation_follows_the_option() -> None:
    assert make().make_request(0).allow_auto_topic_creation
    assert not make(allow_auto_create_topics=False).make_request(0).allow_auto_topic_creation


def test_settings_come_from_the_configuration() -> None:
    config = ProducerConfig.from_options(
        bootstrap_servers="a", metadata_recovery_strategy="none", metadata_max_age_ms=7, allow_auto_create_topics=False
    )
    metadata = Metadata(config, 0)
    assert not metadata.should_rebootstrap(10**9)
    assert not metadata.make_request(0).allow_auto_topic_creation


# -- backoff -----------------------------------------------------------------------------------------------------------


def test_failures_in_a_row_wait_longer_each_time_up_to_the_maximum() -> None:
    metadata = make()
    now_ms, waits = 0, []
    for _ in range(6):
        metadata.make_request(now_ms)
        metadata.on_failure(LOST, now_ms)
        waits.append(metadata.next_refresh_ms(now_ms))
        now_ms += waits[-1]
    assert waits == [100, 200, 400, 800, 1000, 1000]
    exchange(metadata, now_ms, answer())
    metadata.request_update()
    assert metadata.next_refresh_ms(now_ms) == BACKOFF_MS


@pytest.mark.parametrize("failures", [1, 2, 5])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_failures_after_an_answer_wait_as_the_first_ones_did(rounds: int, failures: int) -> None:
    metadata, now_ms = make(), 0
    waits: list[list[int]] = []
    for _ in range(rounds):
        waits.append([])
        for _ in range(failures):
            metadata.request_update()
            now_ms += metadata.next_refresh_ms(now_ms)
            metadata.make_request(now_ms)
            metadata.on_failure(LOST, now_ms)
            waits[-1].append(metadata.next_refresh_ms(now_ms))
        now_ms += waits[-1][-1]
        exchange(metadata, now_ms, answer())
    assert waits == [waits[0]] * rounds
    assert waits[0] == sorted(waits[0])


def test_failed_request_is_asked_again_in_full() -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    metadata.make_request(0)
    metadata.on_failure(LOST, 0)
    assert exchange(metadata, BACKOFF_MS, answer(topic("a"))) == ["a"]


def test_failed_full_request_stays_a_full_one() -> None:
    metadata = knowing(topic("a"))
    metadata.request_update()
    metadata.make_request(100)
    metadata.on_failure(LOST, 150)
    exchange(metadata, 300, answer(topic("a")))
    assert metadata.age_ms(300) == 0


def test_failed_partial_request_is_asked_again_with_newer_topics() -> None:
    metadata = knowing(topic("a"))
    metadata.add_topic("b", 0)
    metadata.make_request(0)
    metadata.add_topic("c", 0)
    metadata.on_failure(LOST, 1)
    assert metadata.next_refresh_ms(1) == BACKOFF_MS
    assert sorted(map(str, exchange(metadata, 200, answer(topic("b"), topic("c"))))) == ["b", "c"]


def test_answers_without_news_wait_longer_each_time_until_there_is_news() -> None:
    metadata = knowing(topic("a", epochs=[5]))
    now_ms, waits = 0, []
    for _ in range(6):
        metadata.request_update()
        waits.append(metadata.next_refresh_ms(now_ms))
        now_ms += waits[-1]
        exchange(metadata, now_ms, answer(topic("a", epochs=[5])))
    assert waits == [100, 100, 200, 400, 800, 1000]
    metadata.request_update()
    now_ms += metadata.next_refresh_ms(now_ms)
    exchange(metadata, now_ms, answer(topic("a", epochs=[6])))
    metadata.request_update()
    assert metadata.next_refresh_ms(now_ms) == BACKOFF_MS


def test_periodic_refresh_forgets_answers_without_news() -> None:
    metadata = knowing(topic("a"), metadata_max_age_ms=10_000)
    now_ms = 0
    for _ in range(5):
        metadata.request_update()
        now_ms += metadata.next_refresh_ms(now_ms)
        exchange(metadata, now_ms, answer(topic("a")))
    now_ms += metadata.next_refresh_ms(now_ms)
    exchange(metadata, now_ms, answer(topic("a")))
    metadata.request_update()
    assert metadata.next_refresh_ms(now_ms) == BACKOFF_MS


def test_empty_broker_list_is_ignored_as_a_failure() -> None:
    metadata = knowing(topic("a", [2]))
    before = metadata.snapshot
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [-1]), nodes=[]))
    assert metadata.snapshot is before
    assert metadata.next_refresh_ms(100) == BACKOFF_MS


@pytest.mark.parametrize("numbers", [[0, 2], [0, 0], [1], [-1, 0], [0, 2**31 - 1]])
def test_partitions_not_numbered_from_0_up_are_refused(numbers: list[int]) -> None:
    metadata = knowing(topic("a", [2]))
    broken = topic("a", [1] * len(numbers), [9] * len(numbers))
    for each, number in zip(broken.partitions, numbers, strict=True):
        each.partition_index = number
    before = metadata.snapshot
    metadata.request_update()
    exchange(metadata, 100, answer(broken))
    assert metadata.snapshot is before
    metadata.make_request(200)


def test_partitions_may_come_in_any_order() -> None:
    shuffled = topic("a", [1, 2, 3], [4, 5, 6])
    shuffled.partitions.reverse()
    info = knowing(shuffled).snapshot.topics["a"]
    assert (info.leaders, info.leader_epochs) == ((1, 2, 3), (4, 5, 6))


# -- what answers change -----------------------------------------------------------------------------------------------


def test_snapshot_holds_nodes_topics_and_cluster() -> None:
    snapshot = knowing(topic("a", [1, 2], [3, 4])).snapshot
    assert snapshot.nodes[2] == Node(2, "h2", 9092, "r2")
    assert (snapshot.cluster_id, snapshot.controller_id) == ("cluster", 1)
    info = snapshot.topics["a"]
    assert (info.topic_id, info.topic_uuid, info.partition_count) == (IDS["a"].bytes, IDS["a"], 2)


def test_changed_topics_are_told_once() -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    metadata.add_topic("b", 0)
    exchange(metadata, 0, answer(topic("a"), topic("b")))
    assert sorted(metadata.take_changes()) == ["a", "b"]
    assert metadata.take_changes() == []
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a"), topic("b", [2], [1])))
    assert metadata.take_changes() == ["b"]


def test_leader_that_is_no_known_node_counts_as_none() -> None:
    assert leaders(knowing(topic("a", [1, 7]))) == (1, -1)


def test_topic_nobody_asked_for_is_left_out() -> None:
    metadata = make()
    exchange(metadata, 0, answer(topic("a")))
    assert metadata.snapshot.topics == {}


def test_older_leader_epoch_keeps_what_is_known() -> None:
    metadata = knowing(topic("a", [1, 2, 3], [5, 5, 5]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [2, 2, 2], [4, 5, 6])))
    info = metadata.snapshot.topics["a"]
    assert (info.leaders, info.leader_epochs) == ((1, 2, 2), (5, 5, 6))


def test_other_topic_id_starts_epochs_and_partitions_anew() -> None:
    metadata = knowing(topic("a", [1, 2, 3], [5, 5, 5]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [3], [0], topic_id=OTHER_ID)))
    info = metadata.snapshot.topics["a"]
    assert (info.leaders, info.leader_epochs, info.topic_uuid) == ((3,), (0,), OTHER_ID)


def test_epochs_of_old_versions_are_not_believed() -> None:
    metadata = knowing(topic("a", [1], [5]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [2], [3])), version=8)
    info = metadata.snapshot.topics["a"]
    assert (info.leaders, info.leader_epochs) == ((2,), (-1,))


def test_more_partitions_are_taken() -> None:
    metadata = knowing(topic("a", [1], [5]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [1, 2, 3], [5, 0, 0])))
    assert leaders(metadata) == (1, 2, 3)


def test_fewer_partitions_of_the_same_topic_come_from_a_broker_that_lags() -> None:
    metadata = knowing(topic("a", [1, 2, 3], [5, 6, 7]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [3], [6])))
    info = metadata.snapshot.topics["a"]
    assert (info.leaders, info.leader_epochs) == ((3, 2, 3), (6, 6, 7))


def test_fewer_partitions_without_ids_mean_a_topic_made_anew() -> None:
    metadata = knowing(topic("a", [1, 2, 3], [5, 6, 7], topic_id=None))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [3], [7], topic_id=None)))
    assert leaders(metadata) == (3,)


def test_partition_without_leader_is_asked_for_again() -> None:
    metadata = knowing(topic("a", [1, -1], partition_error=5), topic("b"))
    assert leaders(metadata) == (1, -1)
    assert exchange(metadata, BACKOFF_MS, answer(topic("a", [1, 2], [0, 1]))) == ["a"]
    assert leaders(metadata) == (1, 2)
    assert metadata.next_refresh_ms(BACKOFF_MS) > 10_000


# -- errors of topics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 5, 72])
def test_topic_with_a_passing_error_is_asked_for_after_the_backoff(code: int) -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    exchange(metadata, 0, answer(topic("a", [], error=code)))
    assert metadata.take_topic_errors() == {}
    assert metadata.next_refresh_ms(0) == BACKOFF_MS
    assert exchange(metadata, BACKOFF_MS, answer(topic("a"))) == ["a"]
    assert metadata.take_changes() == ["a"]


def test_topic_without_partitions_or_left_out_is_asked_for_again() -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    metadata.add_topic("b", 0)
    exchange(metadata, 0, answer(topic("a", [])))
    assert metadata.snapshot.topics == {}
    assert sorted(map(str, exchange(metadata, BACKOFF_MS, answer()))) == ["a", "b"]


@pytest.mark.parametrize(("code", "error_class"), [(17, BrokerError), (29, AuthorizationError)])
def test_hopeless_error_is_told_once_and_not_asked_again(code: int, error_class: type[Exception]) -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    exchange(metadata, 0, answer(topic("a", [], error=code)))
    errors = metadata.take_topic_errors()
    assert isinstance(errors["a"], error_class)
    assert "a" in str(errors["a"])
    assert metadata.take_topic_errors() == {}
    assert metadata.next_refresh_ms(0) > 10_000


def test_refused_topic_that_is_wanted_again_waits_for_the_backoff() -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    exchange(metadata, 0, answer(topic("a", [], error=29)))
    metadata.add_topic("a", 1)
    assert metadata.next_refresh_ms(1) == BACKOFF_MS - 1
    exchange(metadata, BACKOFF_MS, answer(topic("a")))
    assert leaders(metadata) == (1,)


def test_refusals_are_remembered_until_the_next_full_refresh() -> None:
    metadata = make()
    metadata.add_topic("a", 0)
    exchange(metadata, 0, answer(topic("a", [], error=29)))
    metadata.request_update()
    exchange(metadata, BACKOFF_MS, answer())
    metadata.add_topic("a", BACKOFF_MS)
    assert metadata.next_refresh_ms(BACKOFF_MS) == 0


def test_known_topic_that_vanishes_waits_for_its_leaders_and_keeps_its_epochs() -> None:
    metadata = knowing(topic("a", [1, 2], [7, 7]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [], error=3)))
    assert leaders(metadata) == (-1, -1)
    assert metadata.take_changes() == ["a"]
    exchange(metadata, 300, answer(topic("a", [3, 3], [6, 8])))
    assert leaders(metadata) == (-1, 3)


def test_known_topic_that_is_refused_keeps_its_leaders() -> None:
    metadata = knowing(topic("a", [2]))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [], error=29)))
    assert leaders(metadata) == (2,)
    assert isinstance(metadata.take_topic_errors()["a"], AuthorizationError)


def test_unknown_topic_id_answer_without_name_is_skipped() -> None:
    metadata = make()
    exchange(metadata, 0, answer(MetadataResponseTopic(error_code=100, name=None, topic_id=OTHER_ID)))
    assert metadata.snapshot.nodes


# -- idle topics -------------------------------------------------------------------------------------------------------


def test_topic_unused_for_long_is_forgotten_unless_it_is_in_use() -> None:
    metadata = knowing(topic("a"), topic("b"), topic("c"), metadata_max_idle_ms=5000, metadata_max_age_ms=10**6)
    metadata.add_topic("c", 4000)
    exchange(metadata, 4000, answer(topic("c")))
    assert metadata.forget_idle_topics(4999, lambda name: False) == []
    assert metadata.forget_idle_topics(5000, lambda name: name == "b") == ["a"]
    assert set(metadata.snapshot.topics) == {"b", "c"}
    assert metadata.forget_idle_topics(9999, lambda name: False) == ["c"]
    assert metadata.forget_idle_topics(10_000, lambda name: False) == ["b"]


def test_topic_still_asked_for_is_not_forgotten() -> None:
    metadata = make(metadata_max_idle_ms=5000)
    metadata.add_topic("a", 0)
    assert metadata.forget_idle_topics(6000, lambda name: False) == []


def test_topic_forgotten_while_asked_for_does_not_come_back() -> None:
    metadata = knowing(topic("a"), metadata_max_idle_ms=5000)
    metadata.request_update()
    metadata.make_request(6000)
    metadata.forget_idle_topics(6000, lambda name: False)
    metadata.on_response(answer(topic("a")), VERSION, 6001)
    assert metadata.snapshot.topics == {}
    assert metadata.take_changes() == []


# -- leader hints ------------------------------------------------------------------------------------------------------


def endpoint(node_id: int) -> Any:
    return SimpleNamespace(node_id=node_id, host=f"new{node_id}", port=1, rack=None)


def test_newer_leader_hint_is_taken_with_its_address() -> None:
    metadata = knowing(topic("a", [1, 1], [5, 5]))
    metadata.on_leader_hint("a", 1, 9, 6, [endpoint(9)])
    assert metadata.take_changes() == ["a"]
    info = metadata.snapshot.topics["a"]
    assert (info.leaders, info.leader_epochs) == ((1, 9), (5, 6))
    assert metadata.snapshot.nodes[9] == Node(9, "new9", 1, None)


@pytest.mark.parametrize(
    ("name", "partition", "leader", "epoch"),
    [("a", 0, 2, 5), ("a", 0, 2, 4), ("a", 0, 9, 6), ("a", 2, 2, 6), ("a", -1, 2, 6), ("b", 0, 2, 6)],
)
def test_leader_hint_that_is_old_or_unknown_is_ignored(name: str, partition: int, leader: int, epoch: int) -> None:
    metadata = knowing(topic("a", [1, 1], [5, 5]))
    metadata.on_leader_hint(name, partition, leader, epoch, [])
    assert metadata.take_changes() == []
    assert leaders(metadata) == (1, 1)


def test_newest_of_several_hints_counts() -> None:
    metadata = knowing(topic("a", [1], [5]))
    for leader, epoch in ((2, 7), (3, 6), (1, 7)):
        metadata.on_leader_hint("a", 0, leader, epoch, [])
    metadata.take_changes()
    assert leaders(metadata) == (2,)


def test_answer_older_than_a_hint_does_not_undo_it() -> None:
    metadata = knowing(topic("a", [1], [5]))
    metadata.request_update()
    metadata.make_request(100)
    metadata.on_leader_hint("a", 0, 2, 6, [])
    metadata.on_response(answer(topic("a", [1], [5])), VERSION, 101)
    assert leaders(metadata) == (2,)
    assert metadata.take_changes() == ["a"]


# -- starting over -----------------------------------------------------------------------------------------------------


def test_rebootstrap_is_due_after_trying_for_long() -> None:
    metadata = make(metadata_recovery_rebootstrap_trigger_ms=1000)
    assert not metadata.should_rebootstrap(0)
    now_ms = 0
    while now_ms <= 1000:
        assert not metadata.should_rebootstrap(now_ms)
        metadata.make_request(now_ms)
        metadata.on_failure(LOST, now_ms)
        now_ms += metadata.next_refresh_ms(now_ms)
    assert metadata.should_rebootstrap(now_ms)


def test_rebootstrap_is_due_when_no_request_could_even_be_sent() -> None:
    metadata = make(metadata_recovery_rebootstrap_trigger_ms=1000)
    assert not metadata.should_rebootstrap(500)
    assert not metadata.should_rebootstrap(1500)
    assert metadata.should_rebootstrap(1501)


def test_success_ends_the_trying() -> None:
    metadata = knowing(topic("a"), metadata_recovery_rebootstrap_trigger_ms=1000)
    assert not metadata.should_rebootstrap(5000)
    metadata.request_update()
    assert not metadata.should_rebootstrap(6000)
    assert metadata.should_rebootstrap(7001)


def test_rebootstrap_starts_over_with_topics_but_without_leaders() -> None:
    metadata = knowing(topic("a", [1, 2], [3, 3]))
    metadata.on_rebootstrap(50)
    assert metadata.snapshot.nodes == {}
    assert leaders(metadata) == (-1, -1)
    assert metadata.take_changes() == ["a"]
    assert exchange(metadata, 50, answer(topic("a", [1, 2], [3, 3]))) == ["a"]
    assert leaders(metadata) == (1, 2)


def test_a_cluster_that_always_wants_a_new_start_is_asked_less_and_less_often() -> None:
    metadata = knowing(topic("a"))
    metadata.request_update()
    exchange(metadata, 100, answer(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
    assert metadata.should_rebootstrap(100)
    metadata.on_rebootstrap(100)
    now_ms, waits = 100, []
    for _ in range(5):
        exchange(metadata, now_ms, answer(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
        assert not metadata.should_rebootstrap(now_ms)
        waits.append(metadata.next_refresh_ms(now_ms))
        now_ms += waits[-1]
    assert waits == [100, 200, 400, 800, 1000]


def test_late_outcome_of_a_request_before_starting_over_is_ignored() -> None:
    metadata = make()
    metadata.make_request(0)
    metadata.on_rebootstrap(1)
    metadata.on_failure(LOST, 2)
    metadata.on_response(answer(), VERSION, 2)
    assert metadata.next_refresh_ms(2) == 0
    assert metadata.snapshot.nodes == {}


def test_broker_that_demands_it_causes_a_rebootstrap_at_once() -> None:
    metadata = knowing(topic("a", [2]))
    metadata.request_update()
    exchange(metadata, 100, answer(error_code=129))
    assert leaders(metadata) == (2,)
    assert metadata.should_rebootstrap(100)
    metadata.on_rebootstrap(100)
    assert not metadata.should_rebootstrap(100)


def test_all_found_brokers_unreachable_cause_a_rebootstrap_once() -> None:
    metadata = knowing(topic("a"))
    assert not metadata.should_rebootstrap(50, is_any_node_usable=False)
    metadata.request_update()
    assert metadata.should_rebootstrap(100, is_any_node_usable=False)
    metadata.on_rebootstrap(100)
    assert not metadata.should_rebootstrap(100, is_any_node_usable=False)


def test_strategy_none_never_starts_over() -> None:
    metadata = make(metadata_recovery_strategy="none")
    metadata.request_update()
    exchange(metadata, 0, answer(error_code=129))
    assert not metadata.should_rebootstrap(10**9, is_any_node_usable=False)


def test_another_cluster_is_refused_even_after_starting_over_where_the_user_says_so() -> None:
    metadata = make(metadata_cluster_check_enable=True)
    metadata.add_topic("a", 0)
    exchange(metadata, 0, answer(topic("a", [1, 1], [9, 9], topic_id=None)))
    assert metadata.last_refusal is None
    metadata.on_rebootstrap(100)
    for now_ms in (100, 300):
        exchange(metadata, now_ms, answer(topic("a", [2], [0], topic_id=None), cluster_id="other"))
        assert metadata.snapshot.nodes == {}
        assert "metadata_cluster_check_enable=true" in str(metadata.last_refusal)
        assert not metadata.should_rebootstrap(now_ms), "it has started over: another server is tried after a backoff"
        assert metadata.next_refresh_ms(now_ms) > 0
    exchange(metadata, 1000, answer(topic("a", [1, 1], [9, 9], topic_id=None)))
    assert metadata.snapshot.cluster_id == "cluster"
    assert metadata.last_refusal is None
    assert not metadata.take_new_cluster()


@pytest.mark.parametrize("check", [None, False])
def test_answer_of_another_cluster_is_refused_until_starting_over(
    check: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = make(metadata_cluster_check_enable=check)
    metadata.add_topic("a", 0)
    exchange(metadata, 0, answer(topic("a", [1, 1], [9, 9], topic_id=None)))
    metadata.request_update()
    exchange(metadata, 100, answer(topic("a", [2], [0], topic_id=None), cluster_id="other"))
    assert (metadata.snapshot.cluster_id, leaders(metadata)) == ("cluster", (1, 1))
    assert metadata.should_rebootstrap(100)
    metadata.on_rebootstrap(100)
    exchange(metadata, 100, answer(topic("a", [2], [0], topic_id=None), cluster_id="other"))
    assert (metadata.snapshot.cluster_id, leaders(metadata)) == ("other", (2,))
    assert metadata.snapshot.topics["a"].leader_epochs == (0,)
    assert (metadata.take_new_cluster(), metadata.take_new_cluster()) == (True, False)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["the cluster is 'other' now, it was 'cluster'"]


@pytest.mark.parametrize("node_id", [-1, -3, -(2**31)])
def test_answer_that_names_a_broker_with_a_negative_id_is_refused(node_id: int) -> None:
    metadata = knowing(topic("a"))
    before = metadata.snapshot
    metadata.request_update()
    metadata.make_request(100)
    error = metadata.on_response(answer(topic("a"), nodes=(1, node_id)), VERSION, 100)
    assert f"a broker with the id {node_id}, which is negative" in str(error)
    assert metadata.snapshot == before


def test_hint_with_a_negative_id_adds_no_broker() -> None:
    metadata = knowing(topic("a"))
    before = metadata.snapshot
    metadata.on_leader_hint("a", 0, -3, 9, [endpoint(-3)])
    assert metadata.snapshot == before


def test_snapshots_are_replaced_and_never_changed() -> None:
    metadata = knowing(topic("a", [1]))
    before = metadata.snapshot
    nodes, topics = dict(before.nodes), dict(before.topics)
    metadata.add_topic("b", 1)
    exchange(metadata, 1, answer(topic("b"), nodes=[1]))
    metadata.on_leader_hint("a", 0, 4, 9, [endpoint(4)])
    metadata.take_changes()
    assert (before.nodes, before.topics) == (nodes, topics)
