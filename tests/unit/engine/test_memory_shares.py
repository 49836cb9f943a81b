"""How much memory a node's records may hold, by the rate at which it answers."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.requests.node_path import NodePath
from kafkaprod.engine.memory_shares import FLOOR_BYTES, LEAST_BYTES, START_BYTES, MemoryShares
from kafkaprod.errors import DeliveryTimeoutError
from tests.support.core.faces import SlabLease
from tests.support.producer.sender_rig import TOPIC, Rig, Sent

MIB = 1 << 20
TIMEOUT_MS = 120_000
QUARTER_S = TIMEOUT_MS / 4000


class Path:
    """A node's share of 64 MiB, and requests to it at times that the test names."""

    def __init__(self, *, may_wait: bool = True) -> None:
        self.pool = BufferPool(64 * MIB)
        self.shares = MemoryShares(self.pool, TIMEOUT_MS, may_wait=may_wait)
        self.shares.set_leaders([1])
        self.path = NodePath()

    def send(self, size: int, now_ms: int, *, leaves_more: bool = True) -> Any:
        leaves_more = self.shares.on_sent(1, leaves_more=leaves_more)
        return self.path.on_sent(size // 10, now_ms, size, leaves_more)  # compressed: memory is what counts

    def answer(self, flight: Any, now_ms: int) -> None:
        self.path.on_answer(flight, now_ms)
        self.shares.on_answer(1, self.path.memory_rate, self.path.shown_rate)

    def lose(self, flight: Any) -> None:
        self.path.on_lost(flight)
        self.shares.on_no_answer(1)

    @property
    def limit(self) -> int | None:
        return next((limit for _, _, limit in self.pool.shares()), None)


def test_a_node_may_hold_what_it_delivers_in_a_quarter_of_the_timeout() -> None:
    path = Path()
    path.answer(path.send(250_000, 0), 2_000)
    assert path.limit == int(125_000 * QUARTER_S)


def test_a_program_that_sends_little_says_nothing_of_the_path() -> None:
    path = Path()
    for second in range(60):
        path.answer(path.send(100, 1000 * second, leaves_more=False), 1000 * second + 500)
    assert path.limit == START_BYTES  # a burst waits until a request of it is answered


def test_a_record_without_room_means_that_there_was_more_to_send() -> None:
    path = Path()
    path.answer(path.send(2_000_000, 0), 1_000)
    full = SlabLease(path.pool, 60 * MIB, node=1)
    with pytest.raises(BufferError):
        SlabLease(path.pool, MIB, node=1)
    path.answer(path.send(500_000, 20_000, leaves_more=False), 21_000)
    assert path.limit == 500_000 * QUARTER_S
    full.release()


def test_answers_that_come_together_are_no_faster_than_the_time_that_they_took() -> None:
    path = Path()
    requests = [path.send(100_000, 10 * number) for number in range(5)]
    for request in requests:
        path.answer(request, 4_000)
    assert path.limit == 125_000 * QUARTER_S


def test_time_without_anything_under_way_does_not_count() -> None:
    path = Path()
    path.answer(path.send(125_000, 0), 1_000)
    path.answer(path.send(125_000, 500_000), 501_000)
    assert path.limit == 125_000 * QUARTER_S


def test_slower_samples_count_when_the_faster_ones_are_old() -> None:
    path = Path()
    path.answer(path.send(1_000_000, 0), 1_000)
    assert path.limit == 1_000_000 * QUARTER_S
    path.answer(path.send(100_000, 1_000), 2_000)
    assert path.limit == 1_000_000 * QUARTER_S
    path.answer(path.send(100_000, 12_000), 13_000)
    assert path.limit == 100_000 * QUARTER_S


def test_a_faster_path_counts_at_once() -> None:
    path = Path()
    path.answer(path.send(100_000, 0), 1_000)
    path.answer(path.send(100_000, 1_000, leaves_more=False), 1_010)
    assert path.limit == 64 * MIB


def test_a_program_that_sends_little_does_not_lower_a_rate() -> None:
    path = Path()
    path.answer(path.send(1_000_000, 0), 1_000)
    for second in range(100, 200):
        path.answer(path.send(100, 1000 * second, leaves_more=False), 1000 * second + 900)
    assert path.limit == 1_000_000 * QUARTER_S


def test_limit_is_a_mebibyte_at_least() -> None:
    path = Path()
    path.answer(path.send(100, 0), 10_000)
    assert path.limit == LEAST_BYTES


def test_request_without_an_answer_says_nothing() -> None:
    path = Path()
    path.lose(path.send(100, 0))
    assert path.limit is None
    path.answer(path.send(125_000, 50_000), 51_000)  # nothing was under way when it was sent
    assert path.limit == 125_000 * QUARTER_S


def test_until_the_first_answer_tells_a_rate_a_node_may_hold_little() -> None:
    path = Path()
    assert path.limit == START_BYTES  # before a connection: a program fills the memory while the first one is made
    first = path.send(100, 0, leaves_more=False)
    second = path.send(1_000_000, 1)
    assert path.limit == START_BYTES
    path.answer(first, 5)
    assert path.limit == START_BYTES
    path.answer(second, 6)
    assert path.limit == 64 * MIB
    path.send(1_000_000, 7)
    assert path.limit == 64 * MIB


@pytest.mark.parametrize("answer_ms", [3, 30, 300])
def test_a_program_that_sends_steadily_may_hold_what_its_node_has_shown_to_take(answer_ms: int) -> None:
    path = Path()
    for ms in range(0, 10_000, answer_ms):
        path.answer(path.send(2_000 * answer_ms // 5, ms, leaves_more=False), ms + answer_ms)
    assert path.limit == 400 * TIMEOUT_MS  # bytes a ms


def test_little_that_is_answered_soon_lets_no_more_wait_than_a_start() -> None:
    path = Path()
    path.answer(path.send(1_000, 0, leaves_more=False), 28)
    assert path.limit == START_BYTES
    flight = path.send(250_000, 30)
    path.answer(flight, 2_030)
    assert path.limit == 125_000 * QUARTER_S


def test_what_a_node_has_shown_it_keeps() -> None:
    path = Path()
    path.answer(path.send(400_000, 0, leaves_more=False), 1_000)
    for second in range(1, 100):
        path.answer(path.send(100, 1000 * second, leaves_more=False), 1000 * second + 900)
    path.shares.set_leaders([1])
    assert path.limit == 400 * TIMEOUT_MS


def test_a_node_that_leads_later_begins_with_a_start_of_its_own() -> None:
    pool = BufferPool(64 * MIB)
    shares = MemoryShares(pool, TIMEOUT_MS)
    shares.set_leaders([1])
    shares.on_answer(1, 0.0, 1_000)
    shares.set_leaders([1, 2])
    assert limits(shares, pool) == {1: 48 * MIB, 2: START_BYTES // 2}
    shares.on_answer(2, 0.0, 1_000)
    assert limits(shares, pool) == {1: 48 * MIB, 2: 48 * MIB}


def test_a_node_that_is_sick_before_its_first_answer_may_hold_its_fair_share() -> None:
    pool = BufferPool(60 * MIB)
    shares = MemoryShares(pool, TIMEOUT_MS)
    shares.set_leaders([1, 2, 3])
    shares.set_sick(2, is_sick=True)
    assert limits(shares, pool)[2] == 20 * MIB
    shares.set_sick(2, is_sick=False)
    assert limits(shares, pool)[2] == 40 * MIB


def test_a_start_without_an_answer_ends_with_the_request() -> None:
    path = Path()
    path.lose(path.send(1_000_000, 0))
    assert path.limit is None
    path.send(1_000_000, 30_000)
    assert path.limit is None


def test_a_start_without_a_connection_ends_with_the_attempt() -> None:
    path = Path()
    path.shares.on_no_answer(-1)  # a bootstrap server leads nothing
    assert path.limit == START_BYTES
    path.shares.on_no_answer(1)
    assert path.limit is None


def test_who_would_be_refused_has_no_limit_at_the_start() -> None:
    path = Path(may_wait=False)
    path.send(1_000_000, 0)
    assert path.limit is None


# -- several nodes -----------------------------------------------------------------------------------------------------


def limits(shares: MemoryShares, pool: BufferPool) -> dict[int, int | None]:
    return {node: limit for node, _, limit in pool.shares()}


def test_half_of_a_fair_share_is_kept_for_every_other_node() -> None:
    pool = BufferPool(60 * MIB)
    shares = MemoryShares(pool, TIMEOUT_MS, may_wait=False)
    shares.set_leaders([1, 2, 3])
    assert limits(shares, pool) == dict.fromkeys((1, 2, 3), 40 * MIB)
    greedy = SlabLease(pool, 40 * MIB - MIB, node=1)
    with pytest.raises(BufferError):
        SlabLease(pool, 2 * MIB, node=1)
    others = [SlabLease(pool, 9 * MIB, node=node) for node in (2, 3)]
    for lease in (greedy, *others):
        lease.release()
    shares.set_leaders([1])
    assert limits(shares, pool)[1] is None  # the only one may have all


def test_nodes_that_may_be_behind_one_link_share_the_least_and_the_start() -> None:
    pool = BufferPool(60 * MIB)
    shares = MemoryShares(pool, TIMEOUT_MS)
    shares.set_leaders(range(4))
    assert limits(shares, pool)[1] == START_BYTES // 4
    shares.on_answer(1, 0.001, 0.001)
    assert limits(shares, pool)[1] == LEAST_BYTES // 4
    shares.set_leaders(range(100))
    shares.on_answer(1, 0.001, 0.001)
    assert limits(shares, pool)[1] == FLOOR_BYTES


def test_a_sick_node_may_hold_its_fair_share() -> None:
    pool = BufferPool(60 * MIB)
    shares = MemoryShares(pool, TIMEOUT_MS, may_wait=False)
    shares.set_leaders([1, 2, 3])
    shares.set_sick(1, is_sick=True)
    assert limits(shares, pool) == {1: 20 * MIB, 2: 40 * MIB, 3: 40 * MIB}
    shares.set_leaders([1, 2])
    assert limits(shares, pool)[1] == 30 * MIB
    shares.set_sick(1, is_sick=False)
    assert limits(shares, pool)[1] == 45 * MIB


def test_partitions_without_a_leader_hold_the_share_of_one_more_node() -> None:
    pool = BufferPool(60 * MIB)
    shares = MemoryShares(pool, TIMEOUT_MS, may_wait=False)
    shares.set_leaders([1, 2, -1, -1])
    assert limits(shares, pool) == {-1: 20 * MIB, 1: 40 * MIB, 2: 40 * MIB}
    shares.set_leaders([1, 2])
    assert limits(shares, pool) == {-1: 45 * MIB, 1: 45 * MIB, 2: 45 * MIB}
    shares.set_leaders([-1])  # the cluster is away: its records may fill the memory
    assert limits(shares, pool)[-1] is None


@pytest.mark.parametrize("node_count", [1, 3, 12])
@pytest.mark.parametrize(("stall_ms", "times"), [(20_000, 1), (8_000, 3)])
def test_a_stall_of_all_nodes_refuses_no_record_while_half_of_the_memory_is_free(
    node_count: int, stall_ms: int, times: int
) -> None:
    step_ms = 10
    rig = Rig(topics={}, linger_ms=5)
    rig.pool.ready = set(range(1, node_count + 1))
    rig.topics = {TOPIC: tuple(rig.pool.ready)}
    rig.learn()
    pool = rig.accumulator.pool
    value = b"x" * (pool.capacity * 4 // 10 // stall_ms * step_ms)  # a record each step: 0.4 of the memory in a stall
    refused = 0
    for ms in range(0, times * (3_000 + stall_ms), step_ms):
        queues = rig.accumulator.topics[TOPIC]
        partition = ms // step_ms % node_count
        future = rig.accumulator.append(queues, None, value, None, partition, 0, rig.clock.now_ms())
        refused += future is None and pool.in_use < pool.capacity // 2
        rig.turn()
        if ms % (3_000 + stall_ms) < 3_000:
            for sent in rig.produce_requests:
                rig.answer(sent)
        rig.turn(step_ms)
    assert refused == 0


# -- with a sender -----------------------------------------------------------------------------------------------------


class ThinLink:
    """A sender whose node takes 125 bytes a millisecond, and a program that appends three times as much."""

    BYTES_PER_MS = 125
    STEP_MS = 20

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        self.rig = Rig(topics={TOPIC: [1] * partition_count}, delivery_timeout_ms=20_000, linger_ms=5)
        self.futures: list[Any] = []
        self.delivered_bytes = 0
        self.wanted = 0.0
        self.credit = 0

    def run(self, seconds: int) -> None:
        for _ in range(seconds * 1000 // self.STEP_MS):
            self.append()
            self.rig.turn(self.STEP_MS)
            self.deliver()

    def append(self) -> None:
        self.wanted = min(self.wanted + 3 * self.BYTES_PER_MS * self.STEP_MS / 1000, 100)
        queues = self.rig.accumulator.topics[TOPIC]
        while self.wanted >= 1:
            partition = len(self.futures) % self.partition_count
            now_ms = self.rig.clock.now_ms()
            future = self.rig.accumulator.append(queues, None, b"v" * 990, None, partition, 0, now_ms)
            if future is None:
                break
            self.futures.append(future)
            self.wanted -= 1

    def deliver(self) -> None:
        self.credit += self.BYTES_PER_MS * self.STEP_MS
        while self.rig.produce_requests:
            sent: Sent = self.rig.produce_requests[0]
            if len(sent.body) > self.credit:
                return
            self.credit -= len(sent.body)
            self.delivered_bytes += len(sent.body)
            self.rig.answer(sent)
        self.credit = 0


@pytest.mark.parametrize("partition_count", [1, 6])
def test_on_a_thin_link_nothing_expires(partition_count: int) -> None:
    link = ThinLink(partition_count)
    link.run(seconds=90)
    assert link.delivered_bytes >= 0.95 * 90_000 * link.BYTES_PER_MS
    failed = [future for future in link.futures if future.done() and future.exception(0) is not None]
    assert not failed, f"{len(failed)} of {len(link.futures)} failed: {failed[0].exception(0)!r}"
    assert link.rig.accumulator.pool.in_use <= LEAST_BYTES


def test_what_waits_longer_than_the_timeout_expires() -> None:
    """That the link of the test above is thin enough."""
    link = ThinLink(6)
    link.rig.sender._sending._paths._shares._may_wait = False
    link.rig.sender._sending._paths._shares.on_answer = lambda *_: None  # type: ignore[method-assign]
    link.run(seconds=30)
    assert any(isinstance(f.exception(0), DeliveryTimeoutError) for f in link.futures if f.done())


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, START_BYTES),
        ({"acks": 0, "enable_idempotence": False}, None),
        ({"max_block_ms": 1_000}, None),
        ({"buffer_full_policy": "raise"}, None),
        ({"buffer_full_policy": "drop"}, None),
        ({"buffer_full_policy": "isolate"}, START_BYTES),
    ],
    ids=str,
)
def test_a_node_has_a_share_of_the_start_where_a_send_waits_for_an_answer(
    options: dict[str, Any], limit: int | None
) -> None:
    rig = Rig(topics={TOPIC: [1]}, **options)
    rig.turn()
    assert limits(rig.sender._sending._paths._shares, rig.accumulator.pool)[1] == limit
