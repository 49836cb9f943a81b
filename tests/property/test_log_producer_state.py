"""Producer state against a restatement of Kafka's rules: the same verdict for every random history."""

from __future__ import annotations

import os
import random

import pytest

from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.producers.producer_state import ProducerState, load_snapshot
from kafkaprod.storage.batch_header import parse_header
from kafkaprod.structs import INT32_MAX
from tests.support.broker.fixtures_log import make_batch

STEPS = 40


class Oracle:
    """One producer as Kafka's documents tell it: everything that was accepted, as a list."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int, int]] = []
        """(epoch, first sequence, count)"""
        self.is_in_transaction = False

    def verdict(self, epoch: int, first: int, count: int, is_transactional: bool) -> int | str | None:
        """None: append. "duplicate", or Kafka's error code."""
        if not self.accepted:
            return None
        newest = self.accepted[-1][0]
        window = [batch for batch in self.accepted if batch[0] == newest][-5:]
        if (epoch, first, count) in window:
            return "duplicate"
        if epoch < newest:
            return 47
        if epoch > newest:
            expected = 0
        else:
            _, last_first, last_count = self.accepted[-1]
            expected = (last_first + last_count) % (INT32_MAX + 1)
        if first != expected:
            return 45
        if self.is_in_transaction and not is_transactional:
            return 48
        return None


def run_history(seed: int) -> int:
    """One random history; the number of verdicts compared."""
    rng = random.Random(seed)
    state, oracle, offset = ProducerState(), Oracle(), 0
    for _ in range(STEPS):
        epoch = oracle.accepted[-1][0] if oracle.accepted else rng.choice((0, 3))
        first = rng.choice((0, 0, INT32_MAX, INT32_MAX - 2, 17))
        count = rng.randint(1, 4)
        if oracle.accepted:
            last_epoch, last_first, last_count = oracle.accepted[-1]
            choice = rng.random()
            if choice < 0.55:
                first = (last_first + last_count) % (INT32_MAX + 1)
            elif choice < 0.8:
                epoch, first, count = rng.choice(oracle.accepted[-8:])
            elif choice < 0.9:
                epoch = last_epoch + rng.choice((-1, 1, 2))
        is_transactional = rng.random() < (0.9 if oracle.is_in_transaction else 0.3)
        header = parse_header(
            make_batch(
                [b""] * count, producer_id=1, epoch=max(epoch, 0), sequence=first, is_transactional=is_transactional
            )
        )
        expected = oracle.verdict(max(epoch, 0), first, count, is_transactional)
        found: int | str | None = None
        if state.find_duplicate(header):
            found = "duplicate"
        else:
            try:
                state.check(header)
            except RecordsRefusedError as error:
                found = error.code
        assert found == expected, (seed, oracle.accepted, header)
        if found is None:
            state.add(header, offset)
            offset += count
            oracle.accepted.append((max(epoch, 0), first, count))
            oracle.is_in_transaction = oracle.is_in_transaction or is_transactional
        if rng.random() < 0.1:
            state = load_snapshot(state.snapshot())  # a restart changes no verdict
    return STEPS


def test_verdicts_are_kafkas_for_random_histories() -> None:
    assert sum(run_history(seed) for seed in range(1500)) == 1500 * STEPS


@pytest.mark.slow
def test_verdicts_are_kafkas_for_a_million_random_histories() -> None:
    for seed in range(int(os.environ.get("KAFKAPROD_PRODUCER_HISTORIES", "1000000")) // STEPS):
        run_history(1_000_000 + seed)
