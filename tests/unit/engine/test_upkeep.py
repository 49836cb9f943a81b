from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkaprod.errors import ConnectionLostError, CorruptDataError, DeliveryTimeoutError
from kafkaprod.net.node import ConnectionStage
from kafkaprod.net.node_state import ConnectionFailure
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from tests.support.producer.sender_rig import TOPIC, Rig, failure


@pytest.mark.parametrize(("is_aware", "preferred"), [(True, {2}), (False, None)])
def test_leaders_in_the_clients_rack_are_preferred_only_if_wanted(is_aware: bool, preferred: set[int] | None) -> None:
    rig = Rig(topics={TOPIC: (1, 2)}, client_rack="r2", partitioner_rack_aware=is_aware)
    assert rig.placement.preferred_nodes == preferred


def nodes_asked_for_metadata(ready: set[int], refreshes: int) -> list[int]:
    """Let something go wrong again and again while answers bring nothing new; return the nodes that were asked."""
    rig = Rig()
    rig.pool.ready = ready
    asked = []
    for _ in range(refreshes):
        rig.metadata.request_update()
        rig.turn(advance_ms=60_000)
        (sent,) = rig.open_of(MetadataRequest)
        asked.append(sent.node_id)
        rig.answer_metadata()
        rig.turn()
    return asked


def test_a_broker_with_old_metadata_is_not_asked_again_and_again() -> None:
    assert nodes_asked_for_metadata({1, 2}, 4) in ([1, 2, 1, 2], [2, 1, 2, 1])


def test_the_only_broker_is_asked_again() -> None:
    assert nodes_asked_for_metadata({1}, 3) == [1, 1, 1]


def test_a_broker_whose_answer_helped_is_asked_as_before() -> None:
    rig = Rig()
    rig.pool.ready = {1, 2}
    for leader in (2, 1, 2):
        rig.topics[TOPIC] = (leader,)
        rig.metadata.request_update()
        rig.turn(advance_ms=60_000)
        (sent,) = rig.open_of(MetadataRequest)
        assert sent.node_id == 1
        response = rig.metadata_response()
        response.topics[0].partitions[0].leader_epoch = rig.metadata.snapshot.topics[TOPIC].leader_epochs[0] + 1
        rig.complete(sent, response=response)
        rig.turn()


def meet_another_cluster(rig: Rig, *, was_written: bool = True) -> None:
    """Let the sender start over and find another cluster; its requests may have reached the former one or not."""
    for sent in rig.produce_requests:
        rig.complete(sent, error=ConnectionLostError("closed"), is_possibly_persisted=was_written)
    rig.pool.is_rebootstrap_required = True
    rig.turn()
    rig.turn()
    (sent,) = rig.open_of(MetadataRequest)
    response = rig.metadata_response()
    response.cluster_id = "other"
    rig.complete(sent, response=response)
    rig.turn()


def test_another_cluster_gives_a_new_producer_id_and_gets_no_record_that_may_be_in_the_former_log() -> None:
    rig = Rig(enable_idempotence=True)
    _, sent = rig.in_flight()
    rig.answer(sent)
    rig.turn()
    unanswered, _ = rig.in_flight()
    meet_another_cluster(rig)
    waiting = rig.send()
    with pytest.raises(ConnectionLostError, match=r"another one \('other'\)") as caught:
        unanswered.result(0)
    assert caught.value.possibly_persisted
    rig.turn()
    assert not rig.produce_requests, "the new cluster does not know the old id"
    rig.answer_producer_id()
    rig.turn()
    rig.turn()
    (sent,) = rig.produce_requests
    (ref,) = sent.produce.refs()
    assert ref.producer == (4000, 1, 0), "an id that both clusters gave has another epoch"
    rig.answer(sent)
    rig.turn()
    assert waiting.result(0).offset == 7
    assert not rig.open_of(InitProducerIdRequest)


def test_a_record_that_never_left_is_sent_to_another_cluster_under_its_id() -> None:
    rig = Rig(enable_idempotence=True)
    unsent, _ = rig.in_flight()
    meet_another_cluster(rig, was_written=False)
    rig.turn()
    rig.answer_producer_id(producer_id=0)
    rig.turn(advance_ms=1000)
    rig.turn(advance_ms=1000)
    (sent,) = rig.produce_requests
    (ref,) = sent.produce.refs()
    assert ref.producer == (0, 1, 0)
    rig.answer(sent)
    rig.turn()
    assert unsent.result(0).offset == 7


def test_a_record_without_idempotence_is_sent_to_another_cluster_again() -> None:
    rig = Rig()
    unanswered, _ = rig.in_flight()
    meet_another_cluster(rig)
    rig.turn(advance_ms=1000)
    rig.answer(rig.produce_requests[-1])
    rig.turn()
    assert unanswered.result(0).offset == 7


def test_a_late_record_says_which_cluster_is_refused_and_which_option_takes_it() -> None:
    rig = Rig(metadata_options={"metadata_cluster_check_enable": True})
    late, _ = rig.in_flight()
    meet_another_cluster(rig)
    rig.turn(advance_ms=rig.config.delivery_timeout_ms)
    with pytest.raises(DeliveryTimeoutError, match=r"'other', expected 'c': metadata_cluster_check_enable=true"):
        late.result(0)


@pytest.mark.parametrize(("was_idle", "level"), [(True, logging.INFO), (False, logging.WARNING)])
def test_the_end_of_an_idle_connection_is_no_warning(
    was_idle: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig()
    rig.pool.failures.append(failure(ConnectionLostError("closed"))._replace(was_idle=was_idle))
    rig.turn()
    assert [record.levelno for record in caplog.records if "ended at stage" in record.getMessage()] == [level]


def continuing_rig(**options: Any) -> Rig:
    """A sender that continues what another process wrote, with its producer id."""
    return Rig(enable_idempotence=True, keeps_producer_id=True, **options)


def answer_for(rig: Rig, cluster_id: str) -> None:
    """Let a broker of a cluster answer the metadata request."""
    (sent,) = rig.open_of(MetadataRequest)
    response = rig.metadata_response()
    response.cluster_id = cluster_id
    rig.complete(sent, response=response)
    rig.turn()
    rig.turn(advance_ms=1000)


def test_what_is_continued_fails_as_soon_as_another_cluster_answers_at_every_address() -> None:
    rig = continuing_rig()
    unanswered, _ = rig.in_flight()
    meet_another_cluster(rig)
    waiting = rig.send()
    rig.turn(advance_ms=1000)
    assert not waiting.done(), "of several bootstrap servers another one may lead to the right cluster"
    answer_for(rig, "other")
    for future in (unanswered, waiting):
        with pytest.raises(CorruptDataError, match=r"cluster 'other', expected 'c': another cluster answers"):
            future.result(0)
    assert not rig.produce_requests
    late = rig.send()
    rig.turn()
    answer_for(rig, "other")
    assert late.done()


def test_what_is_continued_goes_on_if_another_address_leads_to_its_cluster() -> None:
    rig = continuing_rig(metadata_options={"bootstrap_servers": (("h1", 9092), ("h2", 9092))})
    unanswered, _ = rig.in_flight()
    meet_another_cluster(rig)
    rig.turn(advance_ms=1000)
    answer_for(rig, "other")
    answer_for(rig, "c")
    rig.turn(advance_ms=1000)
    (sent,) = rig.produce_requests
    (ref,) = sent.produce.refs()
    assert ref.producer == (4000, 0, 0)
    rig.answer(sent)
    rig.turn()
    assert unanswered.result(0).offset == 7


def lose_connection(rig: Rig) -> None:
    """Let the connection to node 1 end, which another one replaces."""
    node = rig.metadata.snapshot.nodes[1]
    rig.pool.failures.append(ConnectionFailure(node, ConnectionStage.READY, ConnectionLostError("closed"), 1))
    rig.turn()


def test_what_is_continued_is_not_sent_through_a_connection_before_metadata_names_its_cluster() -> None:
    rig = continuing_rig()
    lose_connection(rig)
    waiting = rig.send()
    rig.turn(advance_ms=1000)
    assert not rig.produce_requests, "what listens there now may be another cluster, which takes any first sequence"
    rig.answer_metadata()
    rig.turn()
    rig.turn()
    rig.answer(rig.produce_requests[0])
    rig.turn()
    assert waiting.result(0).offset == 7


def test_a_producer_that_continues_nothing_sends_through_another_connection_at_once() -> None:
    rig = Rig(enable_idempotence=True)
    lose_connection(rig)
    rig.send()
    rig.turn()
    assert rig.produce_requests


def expired_after(code: int | None, error: Exception | None = None) -> DeliveryTimeoutError:
    """Answer the only attempt of a record with a code, or with nothing; return its error after delivery_timeout_ms."""
    rig = Rig(delivery_timeout_ms=5000)
    future, sent = rig.in_flight()
    if code is not None:
        rig.answer(sent, code)
    elif error is not None:
        rig.complete(sent, error=error, is_possibly_persisted=True)
    rig.pool.ready = set()
    rig.turn()
    rig.turn(advance_ms=5000)
    outcome = future.exception(0)
    assert isinstance(outcome, DeliveryTimeoutError)
    return outcome


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_late_record_that_was_only_refused_is_not_in_the_log(code: ErrorCode) -> None:
    error = expired_after(code)
    assert not error.possibly_persisted
    assert "may be in the log" not in str(error)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, None),  # it may have been written before the leader changed
        (None, ConnectionLostError("closed")),
        (None, None),  # it is still on its way
    ],
)
def test_a_late_record_without_a_definite_answer_may_be_in_the_log(
    code: ErrorCode | None, failure: Exception | None
) -> None:
    error = expired_after(code, failure)
    assert error.possibly_persisted
    assert "they may be in the log" in str(error)
