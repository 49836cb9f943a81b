from __future__ import annotations

from dataclasses import replace

import pytest

from kafkaprod.engine.transactions.answers import judge, worst
from kafkaprod.engine.transactions.verdicts import Facts, Step, Verdict
from kafkaprod.protocol.error_codes import ErrorCode

V1, V2 = Facts(), Facts(is_v2=True)
COMMIT_V1, COMMIT_V2 = Facts(is_commit=True), Facts(is_v2=True, is_commit=True)
DONE, RETRY, FIND, WAIT = Verdict.DONE, Verdict.RETRY, Verdict.FIND_COORDINATOR, Verdict.WAIT_FOR_PREVIOUS
ABORTABLE, FATAL, REFUSED = Verdict.ABORTABLE, Verdict.FATAL, Verdict.REFUSED
ADD, GROUP, OFFSETS, END, INIT = Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.COMMIT_OFFSETS, Step.END, Step.INIT

# request, facts -> verdicts by code; for codes that are neither here nor retriable see test_other_codes
TABLE: list[tuple[Step, Facts, dict[int, Verdict]]] = [
    (ADD, V1, {47: FATAL, 90: FATAL, 48: FATAL, 49: FATAL, 53: FATAL, 59: ABORTABLE, 120: ABORTABLE, 29: ABORTABLE}),
    (ADD, V1, {55: ABORTABLE, 3: RETRY, 14: RETRY, 15: FIND, 16: FIND, 51: WAIT, -1: ABORTABLE}),
    (ADD, Facts(can_bump=False), {59: FATAL}),
    (GROUP, V1, {47: FATAL, 90: FATAL, 48: FATAL, 49: FATAL, 53: FATAL, 59: ABORTABLE, 120: ABORTABLE, 30: ABORTABLE}),
    (GROUP, V1, {29: ABORTABLE, 24: ABORTABLE, 12: ABORTABLE, 55: FATAL, -1: FATAL, 16: FIND, 51: WAIT}),
    (
        OFFSETS,
        V1,
        {47: FATAL, 90: FATAL, 48: FATAL, 49: FATAL, 53: FATAL, 120: ABORTABLE, 30: ABORTABLE, 29: ABORTABLE},
    ),
    (OFFSETS, V1, {22: ABORTABLE, 25: ABORTABLE, 82: ABORTABLE, 69: ABORTABLE, 113: ABORTABLE, 12: ABORTABLE}),
    (OFFSETS, V1, {7: FIND, 15: FIND, 16: FIND, 14: RETRY, 3: RETRY, 51: WAIT, 59: FATAL, -1: FATAL, 55: FATAL}),
    (OFFSETS, V2, {47: ABORTABLE, 90: ABORTABLE, 48: ABORTABLE, 49: FATAL, 53: FATAL, 22: ABORTABLE}),
    (
        END,
        COMMIT_V1,
        {47: FATAL, 90: FATAL, 48: FATAL, 49: FATAL, 53: FATAL, 59: ABORTABLE, 120: ABORTABLE, -1: RETRY},
    ),
    (END, COMMIT_V2, {47: ABORTABLE, 90: ABORTABLE, 48: ABORTABLE, 49: FATAL, 53: FATAL, 120: ABORTABLE, 51: WAIT}),
    (END, V1, {47: FATAL, 90: FATAL, 48: FATAL, 49: FATAL, 59: FATAL, 120: FATAL, -1: RETRY, 14: RETRY}),
    (END, V2, {47: FATAL, 90: FATAL, 48: FATAL, 49: FATAL, 120: FATAL, 51: WAIT, 16: FIND}),
    (INIT, Facts(is_first_init=True), {53: REFUSED, 31: REFUSED, 90: FATAL, 47: FATAL, 50: FATAL, 120: ABORTABLE}),
    (INIT, Facts(is_first_init=True), {51: WAIT, 14: RETRY, 15: FIND, 16: FIND, -1: FATAL, 35: FATAL}),
    (Step.BUMP, V2, {53: FATAL, 31: FATAL, 90: FATAL, 49: FATAL, 120: ABORTABLE, 51: WAIT}),
    (Step.FIND_COORDINATOR, Facts(is_first_init=True), {53: REFUSED, 15: RETRY, 14: RETRY, 30: ABORTABLE}),
    (Step.FIND_COORDINATOR, V1, {53: FATAL, 15: RETRY, 16: RETRY, 30: ABORTABLE, 120: ABORTABLE, -1: FATAL}),
]
ROWS = [(step, facts, code, verdict) for step, facts, codes in TABLE for code, verdict in codes.items()]


@pytest.mark.parametrize(("step", "facts", "code", "verdict"), ROWS)
def test_verdict(step: Step, facts: Facts, code: int, verdict: Verdict) -> None:
    assert judge(step, code, facts) is verdict


@pytest.mark.parametrize("step", Step)
def test_success_is_success_everywhere(step: Step) -> None:
    assert all(judge(step, 0, facts) is DONE for facts in (V1, V2, COMMIT_V1, COMMIT_V2))


@pytest.mark.parametrize("step", Step)
def test_retriable_codes_never_end_a_transaction(step: Step) -> None:
    repeated = (RETRY, FIND, WAIT)
    for code in ErrorCode:
        if code.retry.name != "NO":
            assert judge(step, int(code), V2) in repeated, code


@pytest.mark.parametrize("step", Step)
def test_other_codes(step: Step) -> None:
    """An unknown code of a newer broker ends the producer, but where nothing can have been written yet."""
    assert judge(step, 9999, COMMIT_V2) is (ABORTABLE if step is ADD else FATAL)


def test_an_abort_is_never_abortable() -> None:
    for facts in (V1, V2):
        for code in {int(code) for code in ErrorCode}:
            assert judge(END, code, replace(facts, is_commit=False)) is not ABORTABLE


def test_of_several_codes_the_worst_decides() -> None:
    assert worst(ADD, [0, 55, 29, 55], V1) == 29
    assert worst(ADD, [55, 3, 55], V1) == 3
    assert worst(ADD, [55, 0], V1) == 55
    assert worst(ADD, [29, 53], V1) == 53
    assert worst(ADD, [0, 0], V1) == 0
    assert worst(OFFSETS, [0, 3, 15], V1) == 15
    assert worst(OFFSETS, [], V1) == 0
