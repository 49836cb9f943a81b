"""EndTxn in one step: the same bytes and the same answers as by the codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSIONS = range(6)


@given(
    transactional_id=st.text(max_size=200),
    producer_id=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 2**15 - 1),
    committed=st.booleans(),
    version=st.sampled_from(VERSIONS),
)
def test_request_made_in_one_step_equals_the_codecs(
    transactional_id: str, producer_id: int, epoch: int, committed: bool, version: int
) -> None:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=committed
    )
    assert request.quick_body(version) == request.encode(version)


@given(
    throttle_ms=st.integers(-(2**31), 2**31 - 1),
    code=st.integers(-1, 120),
    producer_id=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 2**15 - 1),
)
def test_answer_read_in_one_step_equals_the_codecs(throttle_ms: int, code: int, producer_id: int, epoch: int) -> None:
    answer = EndTxnResponse(
        throttle_time_ms=throttle_ms, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )
    body = memoryview(answer.encode(5))
    assert EndTxnResponse.read_quick(body, 5) == EndTxnResponse.decode(body, 5) == answer


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_older_answers_are_left_to_the_codec(version: int) -> None:
    assert EndTxnResponse.read_quick(memoryview(EndTxnResponse().encode(version)), version) is None


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body[:-1] + b"\1", lambda body: body + b"\0"])
def test_unusual_answers_are_left_to_the_codec(change: object) -> None:
    assert callable(change)
    assert EndTxnResponse.read_quick(memoryview(change(EndTxnResponse().encode(5))), 5) is None
