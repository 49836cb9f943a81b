"""Inputs where Python was built without one of its optional libraries."""

from __future__ import annotations

import bz2
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules["_bz2"] = None  # as where CPython was built without libbz2
from kafkaprod.cli.main import main
sys.exit(main())
"""


def dry_load(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "load", str(path), "-t", "t", "--dry-run"]
    return subprocess.run(command, capture_output=True, text=True)


def test_only_an_input_compressed_with_bz2_needs_it(tmp_path: Path) -> None:
    plain, compressed = tmp_path / "a.txt", tmp_path / "a.txt.bz2"
    plain.write_bytes(b"a line\n")
    compressed.write_bytes(bz2.compress(b"a line\n"))
    done = dry_load(plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a line" in done.stdout
    refused = dry_load(compressed)
    assert refused.returncode != 0
    assert "built without bz2" in refused.stderr
    assert "Traceback" not in refused.stderr
