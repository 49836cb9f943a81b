"""Where records without a key go while one broker is slow: every case in virtual time, as a table.

`python -m tests.campaigns.slow_brokers` takes some minutes; `--without` leaves out the rule that records without a key
leave what is behind. A line ends with an exclamation mark where the slow broker gets more than its share of partitions
and a tenth, or the median of all records is more than twice that of the other brokers; then the exit status is 1. The
unit tests run some of the cases (tests/unit/engine/test_slow_broker.py).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from unittest.mock import patch

from kafkaprod.engine.sending import Sending
from tests.support.producer.slow_broker import Answers, Seen, SlowBroker

SECONDS = 6
LEAST_COUNT = 150  # records, below which a share is chance
ANSWERS = (
    *(Answers(ms, ms, at_a_time) for ms in (20, 40, 60, 100, 200, 400, 600) for at_a_time in (1, 5)),
    Answers(50, 500),
    Answers(50, 500, 5),
    Answers(20, 20, lost=3),
    Answers(100, 100, 5, lost=3),
)
RATES = (10, 50, 200, 1_000, 10_000)


def is_fair(seen: Seen, broker_count: int, record_count: float) -> bool:
    """Return whether the slow broker got no more than its share, and the median is that of the others."""
    luck = 0.0 if record_count >= 1000 else 1.5 / record_count**0.5
    return seen.share <= 1 / broker_count + 0.1 + luck and seen.p50_ms <= 2 * seen.fast_p50_ms


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.slow_brokers", description=__doc__)
    parser.add_argument("--without", action="store_true", help="leave the rule out")
    parser.add_argument("--seed", type=int, default=1, help="of the draws")
    chosen = parser.parse_args()
    print("answers in ms, at a time, lost % | records/s | brokers | linger | share | p50, others' ms | records a batch")
    with patch.object(Sending, "_end_turn", lambda *_: None) if chosen.without else patch.dict({}):
        unfair = sum(not _play(*case, chosen.seed) for case in itertools.product((3, 12), (0, 5, 50), ANSWERS, RATES))
    print(f"{unfair} cases are not as they should be")
    return 1 if unfair else 0


def _play(broker_count: int, linger_ms: int, answers: Answers, per_s: int, seed: int) -> bool:
    """Print a case; return whether it is as it should be."""
    seconds = max(SECONDS, LEAST_COUNT / per_s) if per_s < 5_000 else 1
    seen = SlowBroker(answers, per_s, broker_count=broker_count, linger_ms=linger_ms, seed=seed).run(seconds)
    is_right = is_fair(seen, broker_count, per_s * seconds)
    columns = (
        f"{answers.least_ms}-{answers.most_ms}, {answers.at_a_time}, {answers.lost}",
        *(per_s, broker_count, linger_ms, f"{seen.share:.0%}", f"{seen.p50_ms}, {seen.fast_p50_ms}"),
        f"{seen.records_per_batch:.1f}{'' if is_right else ' !'}",
    )
    print(*columns, sep=" | ", flush=True)
    return is_right


if __name__ == "__main__":
    sys.exit(main())
