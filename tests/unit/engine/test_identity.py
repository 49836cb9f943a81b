from __future__ import annotations

import pytest

from kafkaprod.engine.identity import MAX_DAMAGED_ANSWERS
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.producer.sender_rig import Rig


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (4000, -1), (-(1 << 63), -(1 << 15))])
def test_negative_id_is_requested_again_after_a_backoff_and_not_at_once(producer_id: int, epoch: int) -> None:
    rig = Rig(topics={}, enable_idempotence=True)
    rig.turn()
    delays = []
    for _ in range(4):
        rig.answer_producer_id(producer_id, epoch)
        rig.turn()
        waited_ms = 0
        while not rig.open_of(InitProducerIdRequest):
            rig.turn(50)
            waited_ms += 50
        delays.append(waited_ms)
    assert delays == [100, 200, 400, 800]


def test_negative_ids_without_end_fail_the_records_as_corrupt() -> None:
    rig = Rig(enable_idempotence=True)
    rig.drain.set_producer(-1, -1)
    future = rig.send()
    for _ in range(MAX_DAMAGED_ANSWERS):
        assert not future.done()
        rig.turn(2000)
        rig.answer_producer_id(-1, 0)
        rig.turn()
    error = future.exception(0)
    assert isinstance(error, CorruptDataError)
    assert "producer id -1" in str(error)


def test_usable_id_after_damaged_ones_is_taken() -> None:
    rig = Rig(enable_idempotence=True)
    rig.drain.set_producer(-1, -1)
    future = rig.send()
    for producer_id in (-1, -1, 7):
        rig.turn(2000)
        rig.answer_producer_id(producer_id)
        rig.turn()
    rig.turn()
    (sent,) = rig.produce_requests
    rig.answer(sent)
    rig.turn()
    assert future.succeeded()
    assert rig.drain.producer_id == 7


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "grant IdempotentWrite on the cluster, or Write on a topic, or set "),
        (ErrorCode.UNSUPPORTED_VERSION, "if this cluster takes no idempotent producers, set "),
        (ErrorCode.INVALID_REQUEST, "if this cluster takes no idempotent producers, set "),
    ],
)
def test_a_cluster_without_producer_ids_is_named_in_our_words_with_the_way_out(code: ErrorCode, advice: str) -> None:
    rig = Rig(enable_idempotence=True)
    rig.drain.set_producer(-1, -1)
    future = rig.send()
    rig.turn()
    rig.answer_producer_id(-1, -1, code)
    rig.turn()
    text = str(future.exception(0))
    assert text.startswith(f"the cluster gave no producer id: {code.name} ({int(code)}): ")
    assert f": {advice}enable_idempotence=false" in text
    assert "the broker says" not in text
