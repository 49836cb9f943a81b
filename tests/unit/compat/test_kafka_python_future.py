"""Calls of a future of compat.kafka_python, beside those of the original."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.future import Future as TheirFuture

from kafkaprod.compat.kafka_python.future import Future


@pytest.mark.parametrize("make", [Future, TheirFuture])
def test_calls_of_a_future_are_made_before_and_behind_its_end(make: Any) -> None:
    called: list[object] = []
    good, bad = make(), make()
    for future in (good, bad):
        future.add_callback(called.append).add_errback(lambda error: called.append(str(error)))
    good.success(1)
    bad.failure(ValueError("bad"))
    for future in (good, bad):
        future.add_callback(lambda value: called.append((value, "later")))
        future.add_errback(lambda error: called.append((str(error), "later")))
    assert called == [1, "bad", (1, "later"), ("bad", "later")]
