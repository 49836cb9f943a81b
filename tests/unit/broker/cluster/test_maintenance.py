"""The cleaner's pause follows the option of now."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod.broker.cluster.maintenance import Maintenance
from kafkaprod.clock import SystemClock
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets


def test_a_shorter_pause_ends_the_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerWithoutSockets(tmp_path).broker
    broker.clock = SystemClock()
    compacted = threading.Event()
    monkeypatch.setattr(broker.log_dirs, "compact", lambda _: compacted.set())
    broker.config = replace(broker.config, log_cleaner_backoff_ms=3_600_000)
    maintenance = Maintenance(broker, lambda call: call())
    maintenance.start()
    try:
        assert not compacted.is_set()
        broker.set_options({"0": {"log.cleaner.backoff.ms": "1"}}, validate_only=False)
        assert compacted.wait(30)
    finally:
        maintenance.stop()
        broker.close()
