"""What type checkers say of programs that use the package, right ones and wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
import numpy as np
from kafkaprod import Column, Headers, Producer

offsets = np.arange(3, dtype=np.int64)
Column.from_offsets(offsets, b"ab")
Column.from_offsets(offsets, np.zeros(3, np.uint8), np.packbits([1]))
Column.from_views(np.zeros(3, np.uint8), [np.zeros(3, np.uint8), b"a"])
Column.from_fixed(np.zeros(3), 8).take(np.array([1], np.int64))
Column.from_list([np.zeros(3, np.uint8), b"a", None])
Headers.from_columns(offsets, Column.nulls(), Column.nulls())


def send(producer: Producer) -> int:
    producer.send_columns("t", (offsets, b"ab"), timestamps_ms=offsets)
    producer.send_many("t", [b"a"], partitions=np.zeros(1, np.int32))
    return producer.send("t", b"v", key=b"k", headers=[("h", b"1")]).result(timeout=1.0).offset
"""
WRONG = """
from kafkaprod import Column, Producer

Column.from_offsets([0, 1], b"a")  # wrong: a list has no buffer
Column.from_list(["text"])  # wrong: text


def send(producer: Producer) -> None:
    producer.send(1, b"v")  # wrong: the topic is a number
    producer.send("t", b"v", partition="0")  # wrong: the partition is text
    producer.send("t", b"v").result().ofset  # wrong: misspelt
    producer.send_colums("t", (b"", b""))  # wrong: misspelt
    producer.flush("1")  # wrong: text
"""


def check(path: Path, program: str) -> list[str]:
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def test_documented_uses_pass(tmp_path: Path) -> None:
    assert check(tmp_path / "right.py", RIGHT) == []


def test_mistakes_are_found(tmp_path: Path) -> None:
    found = {int(line.split(":")[1]) for line in check(tmp_path / "wrong.py", WRONG)}
    assert found == {number for number, line in enumerate(WRONG.splitlines(), 1) if "# wrong" in line}
