"""What the error of a try says of other tries."""

from __future__ import annotations

import pytest

from kafkaprod.errors import KafkaError, TransactionAbortableError
from kafkaprod.marks.endings import is_fenced
from kafkaprod.protocol.error_codes import ErrorCode, error_for


def caused_by(code: ErrorCode) -> KafkaError:
    """Return the error of a call as a producer raises it: the coordinator's or the leader's is the cause."""
    error = TransactionAbortableError("EndTxn")
    error.__cause__ = error_for(code)
    return error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.INVALID_TXN_STATE, True),  # a commit behind the abort of the later try
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
    ],
)
def test_what_a_later_try_causes_is_known(code: ErrorCode, expected: bool) -> None:
    assert is_fenced(caused_by(code)) is expected
    assert is_fenced(error_for(code)) is expected
