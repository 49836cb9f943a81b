"""What the benchmark of links computes and writes; the wire itself, where it can be made."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from benchmarks.link.matrix import cells, rate_of
from benchmarks.link.table import section, section_of, with_section
from benchmarks.link.wire import Wire, WireSettings, why_not

PAGE = "# Figures\n\n## Plain\n\nsome\n\n## Where and when\n\nhere\n"


def _run(client: str, mb_s: float, failed: dict[str, int]) -> dict[str, Any]:
    cell = {"round_trip_ms": 50.0, "mbit_s": 10.0, "partition_count": 6}
    return {
        "cell": cell,
        "client": client,
        "version": "1",
        "mb_s": mb_s,
        "p50_ms": 60.0,
        "p99_ms": 70.0,
        "failed": failed,
    }


def _result(*runs: dict[str, Any]) -> dict[str, Any]:
    about = {"processor": "p", "cores": 2, "kernel": "6", "load_average": 1.0}
    return {"date": "2026-01-01", "machine": about, "seconds": 5, "runs": list(runs)}


def test_rate_counts_from_one_arrival_to_the_last() -> None:
    assert rate_of([(1.0, 100), (2.0, 200), (3.0, 300)], 3.5) == 100
    assert rate_of([(1.0, 100)], 3.5) == 0


def test_silence_at_the_end_counts_when_it_is_longer_than_those_before() -> None:
    assert rate_of([(1.0, 100), (2.0, 200), (3.0, 300)], 6.0) == 50


def test_matrix_has_every_cell_once() -> None:
    assert len(set(cells())) == len(list(cells())) == 48


def test_table_shows_the_median_run_and_marks_the_best() -> None:
    ours = [_run("kafkaprod", rate, {}) for rate in (1.0, 3.0, 2.0)]
    text = section([_result(*ours, _run("other", 1.8, {"timeout": 3}))])
    assert "| 10 Mbit/s, 50 ms | 6 | **2.00** (0.1, 0.1) | 1.80 (0.1, 0.1) |" in text
    assert "Records of other failed." in text


def test_section_is_replaced_and_the_rest_of_the_page_stays() -> None:
    first = section([_result(_run("kafkaprod", 1.0, {}))])
    second = section([_result(_run("kafkaprod", 2.0, {}))])
    page = with_section(with_section(PAGE, first), second)
    assert section_of(page) == second
    assert page.replace(second + "\n\n", "") == PAGE
    assert with_section(page, second) == page


@pytest.mark.skipif(bool(why_not()), reason=f"no wire can be made: {why_not()}")
def test_wire_delays_what_passes() -> None:
    with Wire(WireSettings(round_trip_ms=30.0, mbit_s=10.0)) as wire:
        command = [*wire.near, "python3", "-c", _CONNECT, wire.far_host]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) >= 30


_CONNECT = """
import socket, sys, time
started = time.monotonic()
try:
    socket.create_connection((sys.argv[1], 9), 10)
except ConnectionRefusedError:  # its answer came over the wire
    print((time.monotonic() - started) * 1000)
"""
