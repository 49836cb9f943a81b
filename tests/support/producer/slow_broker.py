"""One slow broker among fast ones in virtual time, and a program that sends records without a key at a steady rate.

`SlowBroker(...).run()` says where the records went and how long they took. Accumulator, sticky partitioner, drain and
sender are real; the brokers are lists of requests (`sender_rig`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafkaprod._core.queues.completion import DeliveryFuture
from tests.support.producer.sender_rig import TOPIC, Rig, Sent

SLOW_NODE = 2
FAST_MS = 5  # in which the other brokers answer
RESENT_MS = 200  # later comes what TCP has to send again


class Answers(NamedTuple):
    """How the slow broker answers.

    Attributes:
        least_ms, most_ms: The time that a request takes, drawn from between.
        at_a_time: Requests that it works on beside one another: 1 or all in flight.
        lost: How many of 100 answers are RESENT_MS late, at every broker.
    """

    least_ms: int
    most_ms: int
    at_a_time: int = 1
    lost: int = 0


class Seen(NamedTuple):
    """What became of the records.

    Attributes:
        share: What part of them went to the slow broker.
        p50_ms: The median time to the answer; those without one count as long as the run lasted.
        fast_p50_ms: The same of those that went to other brokers.
        records_per_batch: Of the batches that were answered.
    """

    share: float
    p50_ms: int
    fast_p50_ms: int
    records_per_batch: float


@dataclass(slots=True)
class _Record:
    future: DeliveryFuture
    sent_ms: int


def _median(times: list[int]) -> int:
    return sorted(times)[len(times) // 2] if times else 0


class SlowBroker:
    """A producer, brokers of two partitions each, of which SLOW_NODE is slow, and the program.

    Args:
        answers: How the slow broker answers.
        per_s: Records a second.
        broker_count: At least two.
        linger_ms: The producer's.
        seed: Of the draws.
        options: More of the producer's.
    """

    def __init__(
        self,
        answers: Answers,
        per_s: float,
        *,
        broker_count: int = 3,
        linger_ms: int = 5,
        seed: int = 1,
        **options: Any,
    ) -> None:
        self.rig = Rig(topics={}, linger_ms=linger_ms, **options)
        self.rig.accumulator.seed = seed
        self.rig.pool.ready = set(range(1, broker_count + 1))
        self.rig.topics = {TOPIC: tuple(number % broker_count + 1 for number in range(2 * broker_count))}
        self.rig.learn()
        self.answers = answers
        self.per_s = per_s
        self.random = random.Random(seed)
        self.busy_until_ms = [0] * answers.at_a_time
        self.due_ms: dict[int, int] = {}
        self.waiting: list[_Record] = []
        self.times_ms: dict[bool, list[int]] = {False: [], True: []}  # by whether the slow broker took the record
        self.batch_count = 0
        self._wanted = 0.0

    def run(self, seconds: float) -> Seen:
        """Let time pass, and say what was seen in it."""
        for _ in range(int(seconds * 1000)):
            self._send()
            self.rig.turn()
            self._answer()
            self.rig.turn()
            self.rig.clock.advance(1)
            self._settle()
        now_ms = self.rig.clock.now_ms()
        unanswered = [(now_ms - record.sent_ms, self._is_slow(record)) for record in self.waiting]
        times = {
            is_slow: self.times_ms[is_slow] + [ms for ms, slow in unanswered if slow == is_slow]
            for is_slow in (False, True)
        }
        count = len(times[False]) + len(times[True])
        return Seen(
            len(times[True]) / count,
            _median(times[False] + times[True]),
            _median(times[False]),
            count / max(self.batch_count, 1),
        )

    def _send(self) -> None:
        self._wanted += self.per_s / 1000
        while self._wanted >= 1:
            self._wanted -= 1
            self.waiting.append(_Record(self.rig.send(b"x" * 100, partition=-1), self.rig.clock.now_ms()))

    def _answer(self) -> None:
        now_ms = self.rig.clock.now_ms()
        for sent in list(self.rig.produce_requests):
            if id(sent) not in self.due_ms:
                self.due_ms[id(sent)] = self._due_ms(sent, now_ms)
            if now_ms >= self.due_ms[id(sent)]:
                del self.due_ms[id(sent)]
                self.batch_count += len(sent.produce)
                self.rig.answer(sent)

    def _due_ms(self, sent: Sent, now_ms: int) -> int:
        late_ms = RESENT_MS if self.random.randrange(100) < self.answers.lost else 0
        if sent.node_id != SLOW_NODE:
            return now_ms + FAST_MS + late_ms
        takes_ms = self.random.randint(self.answers.least_ms, self.answers.most_ms) + late_ms
        free = min(range(self.answers.at_a_time), key=lambda number: self.busy_until_ms[number])
        self.busy_until_ms[free] = max(self.busy_until_ms[free], now_ms) + takes_ms
        return self.busy_until_ms[free]

    def _is_slow(self, record: _Record) -> bool:
        return self.rig.topics[TOPIC][record.future.partition] == SLOW_NODE

    def _settle(self) -> None:
        now_ms = self.rig.clock.now_ms()
        for record in self.waiting:
            if record.future.done():
                self.times_ms[self._is_slow(record)].append(now_ms - record.sent_ms)
        self.waiting = [record for record in self.waiting if not record.future.done()]
