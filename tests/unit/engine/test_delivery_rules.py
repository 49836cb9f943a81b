from __future__ import annotations

from itertools import product

import pytest

from kafkaprod.engine.delivery_rules import MAYBE_PERSISTED, BatchFacts, BatchVerdict, judge, may_be_persisted
from kafkaprod.protocol.error_codes import ErrorCode, describe

SPLIT, SUCCEED, RETRY, RENUMBER, FAIL = (
    BatchVerdict.SPLIT,
    BatchVerdict.SUCCEED,
    BatchVerdict.RETRY,
    BatchVerdict.RENUMBER,
    BatchVerdict.FAIL,
)
OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_ID = 45, 47, 59
CODES = sorted({int(code) for code in ErrorCode} - {0})

PLAIN = BatchFacts(
    record_count=5,
    attempts=0,
    has_sequence=False,
    is_first_outstanding=True,
    maybe_persisted=False,
)
NUMBERED = PLAIN._replace(has_sequence=True)
ALL_FACTS = [
    BatchFacts(record_count, attempts, *flags)
    for record_count, attempts in product((1, 5), (0, 3, 4))
    for flags in product((False, True), repeat=3)
]

# code -> verdicts for (no sequence, numbered and first, numbered and not first)
ORDER = (PLAIN, NUMBERED, NUMBERED._replace(is_first_outstanding=False))
TABLE = {
    -1: (FAIL,) * 3,
    2: (RETRY,) * 3,  # CORRUPT_MESSAGE
    3: (RETRY,) * 3,  # UNKNOWN_TOPIC_OR_PARTITION
    5: (RETRY,) * 3,
    6: (RETRY,) * 3,
    7: (RETRY,) * 3,
    10: (SPLIT,) * 3,
    13: (RETRY,) * 3,
    17: (FAIL,) * 3,  # INVALID_TOPIC_EXCEPTION
    18: (FAIL,) * 3,  # RECORD_LIST_TOO_LARGE
    19: (RETRY,) * 3,
    20: (RETRY,) * 3,
    21: (FAIL,) * 3,  # INVALID_REQUIRED_ACKS
    29: (FAIL,) * 3,  # TOPIC_AUTHORIZATION_FAILED
    31: (FAIL,) * 3,
    32: (FAIL,) * 3,  # INVALID_TIMESTAMP
    43: (FAIL,) * 3,
    45: (FAIL, RENUMBER, RETRY),
    46: (SUCCEED,) * 3,
    47: (FAIL, RENUMBER, RENUMBER),
    56: (RETRY,) * 3,
    59: (FAIL, RENUMBER, RENUMBER),
    74: (RETRY,) * 3,  # FENCED_LEADER_EPOCH
    76: (FAIL,) * 3,  # UNSUPPORTED_COMPRESSION_TYPE
    87: (FAIL,) * 3,  # INVALID_RECORD
    89: (RETRY,) * 3,  # THROTTLING_QUOTA_EXCEEDED
    90: (FAIL,) * 3,
    100: (RETRY,) * 3,  # UNKNOWN_TOPIC_ID
    999: (FAIL,) * 3,
}


@pytest.mark.parametrize("code", TABLE)
def test_verdict_is_the_table_s(code: int) -> None:
    assert tuple(judge(code, facts, 10) for facts in ORDER) == TABLE[code]


def test_every_code_with_every_fact_keeps_the_rules() -> None:
    for code, facts in product(CODES, ALL_FACTS):
        verdict = judge(code, facts, 4)
        has_tries = facts.attempts < 4
        context = (code, facts)
        if not has_tries:
            assert verdict not in (RETRY, RENUMBER), context
        if verdict is SPLIT:
            assert code == 10, context
            assert facts.record_count > 1, context
        if verdict is SUCCEED:
            assert code == 46, context
        if verdict is RENUMBER:
            assert code in (OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_ID), context
            assert facts.has_sequence, context
            assert not facts.maybe_persisted, "what may be in the log is never written under another number"
        if verdict is RETRY and code != OUT_OF_ORDER:
            assert describe(code).retriable, context
        if verdict is FAIL and describe(code).retriable:
            assert not has_tries, context


@pytest.mark.parametrize("code", [OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_ID])
def test_batch_that_may_be_written_is_failed_and_not_numbered_anew(code: int) -> None:
    facts = NUMBERED._replace(maybe_persisted=True)
    assert judge(code, facts, 10) is FAIL


def test_single_record_too_large_fails() -> None:
    assert judge(10, PLAIN._replace(record_count=1), 10) is FAIL


def test_no_retries_means_none() -> None:
    assert judge(19, PLAIN, 0) is FAIL
    assert judge(OUT_OF_ORDER, NUMBERED._replace(is_first_outstanding=False), 0) is FAIL


def test_answers_after_which_the_records_may_be_written_are_known() -> None:
    assert {-1, 6, 7, 13, 20, 56} == MAYBE_PERSISTED


def test_a_code_of_the_future_does_not_say_that_nothing_was_written() -> None:
    assert may_be_persisted(9_999)
    assert {code for code in ErrorCode if may_be_persisted(code)} == MAYBE_PERSISTED
