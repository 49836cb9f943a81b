"""The CSV reader has the rows of other readers, or names bad ones: `python -m tests.campaigns.loader_comparison`."""

from __future__ import annotations

from pathlib import Path

from tests.campaigns.loader_comparison import compare_files


def test_rows_of_hostile_files_are_those_of_most_readers_or_refused(tmp_path: Path) -> None:
    tally = compare_files(40, 0, tmp_path)
    print("\n".join(tally.lines()))
    assert not tally.failures
