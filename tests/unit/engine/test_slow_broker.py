"""Records without a key beside a broker that is slow and not dead. All cases: tests/campaigns/slow_brokers.py."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from kafkaprod.engine.sending import Sending
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import PartitionProduceResponse
from tests.campaigns.slow_brokers import is_fair
from tests.support.producer.sender_rig import TOPIC, Rig
from tests.support.producer.slow_broker import Answers, Seen, SlowBroker

IN_ORDER = [Answers(ms, ms) for ms in (20, 60, 200, 600)]
SIDE_BY_SIDE = [Answers(ms, ms, at_a_time=5) for ms in (40, 100, 400)]
AT_RANDOM = [Answers(50, 500), Answers(50, 500, at_a_time=5), Answers(100, 100, lost=3)]


@pytest.mark.parametrize("answers", [*IN_ORDER, *SIDE_BY_SIDE, *AT_RANDOM], ids=str)
@pytest.mark.parametrize(
    ("per_s", "broker_count", "linger_ms"),
    [(200, 3, 5), (1_000, 3, 0), (200, 12, 5), (1_000, 3, 50)],
)
def test_slow_broker_gets_no_more_than_its_share(
    answers: Answers, per_s: int, broker_count: int, linger_ms: int
) -> None:
    seen = SlowBroker(answers, per_s, broker_count=broker_count, linger_ms=linger_ms).run(2)
    assert is_fair(seen, broker_count, 2 * per_s), seen


@pytest.mark.parametrize("answers", [Answers(100, 100), Answers(400, 400, at_a_time=5), Answers(50, 500)], ids=str)
def test_slow_broker_gets_most_where_the_sender_does_not_say_what_it_passed_over(answers: Answers) -> None:
    with patch.object(Sending, "_end_turn", lambda *_: None):
        seen = SlowBroker(answers, 200).run(2)
    assert not is_fair(seen, 3, 400)
    assert seen.share > 0.45


@pytest.mark.parametrize(
    "options", [{"acks": 1}, {"enable_idempotence": True}, {"max_in_flight_requests_per_connection": 1}]
)
def test_share_does_not_depend_on_acknowledgements_or_order(options: dict[str, Any]) -> None:
    seen = SlowBroker(Answers(100, 100), 200, **options).run(2)
    assert is_fair(seen, 3, 400), seen


def test_slow_broker_gets_its_share_again_whenever_it_is_fast() -> None:
    slow = SlowBroker(Answers(5, 5), 200)
    shares: list[Seen] = []
    for _ in range(3):
        slow.answers = Answers(300, 300)
        shares.append(_seen_of(slow, 2))
        slow.answers = Answers(5, 5)
        slow.run(1.5)
        shares.append(_seen_of(slow, 2))
    assert [seen.share <= 0.3 for seen in shares] == [True, False] * 3, shares


def _seen_of(slow: SlowBroker, seconds: float) -> Seen:
    slow.times_ms = {False: [], True: []}
    return slow.run(seconds)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_partition_that_refuses_gets_no_more_than_its_share(code: ErrorCode) -> None:
    rig = Rig(topics={TOPIC: (1, 2, 1, 2, 1, 2)}, linger_ms=5, retries=1_000)
    rig.pool.ready = {1, 2}
    counts = Counter[int]()
    for _ in range(2_000):
        counts[rig.send(b"x" * 500, partition=-1).partition] += 1
        rig.turn()
        for sent in rig.produce_requests:
            rig.answer_topics(
                sent,
                {TOPIC: [_answer(ref.partition, code) for ref in sent.produce.refs()]},
            )
        rig.turn(1)
    assert counts[3] <= 2_000 / 6 * 1.3, counts


def _answer(partition: int, code: ErrorCode) -> PartitionProduceResponse:
    if partition == 3:
        return PartitionProduceResponse(index=partition, error_code=code, base_offset=-1)
    return PartitionProduceResponse(index=partition, error_code=0, base_offset=7)


@pytest.mark.parametrize("reason", ["no connection", "all that may be in flight"])
def test_node_that_takes_nothing_gets_little(reason: str) -> None:
    rig = Rig(topics={TOPIC: (1, 2, 1, 2, 1, 2)}, linger_ms=5, partitioner_availability_timeout_ms=0)
    rig.pool.ready = {1} if reason == "no connection" else {1, 2}
    counts = Counter[int]()
    for _ in range(2_000):
        counts[rig.send(b"x" * 500, partition=-1).partition] += 1
        rig.turn()
        for sent in rig.produce_requests:
            if sent.node_id == 1:
                rig.answer(sent)
        rig.turn(1)
    assert counts[1] + counts[3] + counts[5] < 200, counts
