"""Arguments of single records on the general path: the compiled path checks its own."""

from __future__ import annotations

import pytest

from kafkaprod.errors import InvalidRecordError
from kafkaprod.intake.checks import MAX_PARTITION, checked_partition, checked_timestamp


@pytest.mark.parametrize("value", [-1, -5, 2**63])
def test_a_timestamp_is_a_time_since_the_epoch(value: int) -> None:
    with pytest.raises(InvalidRecordError, match="timestamp_ms"):
        checked_timestamp(value)
    assert checked_timestamp(0) == 0


@pytest.mark.parametrize("value", [-1, MAX_PARTITION + 1])
def test_a_partition_is_not_negative(value: int) -> None:
    with pytest.raises(InvalidRecordError, match="partition"):
        checked_partition(value)
    assert checked_partition(0) == 0
