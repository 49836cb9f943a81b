"""Waiting for a change of an embedded cluster."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from kafkaprod.broker.embedding.cluster_changes import ChangeSignal, send_signal

LONG_S = 30.0


def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with ChangeSignal(str(tmp_path)) as signal:
        send_signal(signal.path)  # before the wait
        signal.wait(LONG_S)
        threading.Thread(target=send_signal, args=(signal.path,)).start()
        signal.wait(LONG_S)
    assert time.monotonic() - began_s < LONG_S


def test_signals_are_for_one_thread_each(tmp_path: Path) -> None:
    with ChangeSignal(str(tmp_path)) as first, ChangeSignal(str(tmp_path)) as second:
        assert first.path != second.path
        send_signal(second.path)
        first.wait(0.0)
        second.wait(LONG_S)


def test_nothing_is_left_of_a_wait(tmp_path: Path) -> None:
    with ChangeSignal(str(tmp_path)) as signal:
        pass
    assert os.listdir(tmp_path) == []
    send_signal(signal.path)  # nobody waits
