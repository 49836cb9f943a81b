from __future__ import annotations

import pytest

from kafkaprod.engine.transactions.commit_table import COMMIT, OUTCOMES, Log, after_answer, after_silence
from kafkaprod.protocol.error_codes import ErrorCode

CHECKED_BEFORE_THE_WRITE = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
FUTURE = 9_999
CODES = [*(int(code) for code in ErrorCode), FUTURE]


@pytest.mark.parametrize("code", CODES)
def test_only_what_is_checked_before_the_write_proves_that_nothing_was_committed(code: int) -> None:
    expected = Log.WITHOUT if code in CHECKED_BEFORE_THE_WRITE else Log.DOUBTFUL
    assert after_answer(Log.WITHOUT, code, is_commit=True) is (Log.COMMIT if code == 0 else expected)


@pytest.mark.parametrize("code", CODES)
def test_after_a_doubtful_attempt_only_success_is_a_proof(code: int) -> None:
    expected = Log.COMMIT if code == 0 else Log.DOUBTFUL
    assert after_answer(Log.DOUBTFUL, code, is_commit=True) is expected


@pytest.mark.parametrize("code", CODES)
def test_only_an_abort_that_succeeds_removes_a_doubt(code: int) -> None:
    assert after_answer(Log.DOUBTFUL, code, is_commit=False) is (Log.WITHOUT if code == 0 else Log.DOUBTFUL)
    assert after_answer(Log.WITHOUT, code, is_commit=False) is Log.WITHOUT


def test_silence_leaves_a_commit_in_doubt_and_an_abort_as_it_was() -> None:
    assert after_silence(Log.WITHOUT, is_commit=True) is Log.DOUBTFUL
    assert after_silence(Log.WITHOUT, is_commit=False) is Log.WITHOUT
    assert after_silence(Log.DOUBTFUL, is_commit=False) is Log.DOUBTFUL


def test_each_state_of_the_log_has_its_outcome_and_each_row_has_a_known_code() -> None:
    assert set(OUTCOMES) == set(Log)
    assert all(isinstance(code, ErrorCode) for code in COMMIT)
