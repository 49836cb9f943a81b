"""The cases of all tables."""

from __future__ import annotations

from tests.unit.broker.kafka_bugs import controlling, following, leading, producing

CASES = [*following.CASES, *leading.CASES, *controlling.CASES, *producing.CASES]
