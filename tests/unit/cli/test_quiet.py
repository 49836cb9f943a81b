"""Every command takes -q."""

from __future__ import annotations

import pytest

from kafkaprod.cli.main import build_parser

COMMANDS = [
    ["load", "x.csv", "-t", "t"],
    ["perf", "--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1"],
    ["produce", "-t", "t"],
    ["tail", "t"],
    ["topics", "list"],
    ["topics", "create", "t"],
    ["topics", "describe", "t"],
    ["topics", "delete", "t"],
    ["doctor"],
    ["quickstart"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_command_takes_quiet(arguments: list[str]) -> None:
    assert build_parser().parse_args([*arguments, "-q"]).quiet
