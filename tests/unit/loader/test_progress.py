"""The lines of progress say how far a load of several files is."""

from __future__ import annotations

import io

import pytest
from tqdm import tqdm

from kafkaprod.loader import progress
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Position
from kafkaprod.loader.progress import BAR, LEAST_BAR, ProgressBar, ProgressLines


def lines(kinds: list[str], position: Position) -> str:
    sources = [Source(f"{i}.{kind}", kind, size=100) for i, kind in enumerate(kinds)]
    out = io.StringIO()
    shown = ProgressLines(sources, out=out)
    shown._next_s = 0.0
    shown.on_block(2000, 3_000_000, position)
    return out.getvalue()


def test_a_line_has_the_file_the_share_the_records_the_bytes_and_the_time_left() -> None:
    line = lines(["csv", "csv", "csv", "csv"], Position(source=1, offset=50))
    assert line.startswith("file 2 of 4, 37.5%, 2,000 records, 3.0 MB, ")
    for part in (" records/s, ", " MB/s", " s left\n"):
        assert part in line


def test_of_files_without_offsets_the_whole_ones_count() -> None:
    assert lines(["parquet", "csv", "parquet"], Position(source=2, row=7)).startswith("file 3 of 3, 66.7%, ")
    assert lines(["parquet", "parquet"], Position(source=2)).startswith("file 2 of 2, 100.0%, ")
    assert lines(["parquet"], Position(row=7)).startswith("2,000 records, 3.0 MB, ")


def test_a_line_comes_every_few_seconds_only() -> None:
    out = io.StringIO()
    shown = ProgressLines([Source("a.csv", "csv", size=100)], out=out)
    shown.on_block(1, 1, Position(offset=1))
    assert out.getvalue() == ""
    assert progress.LINE_EVERY_S == 5.0


@pytest.mark.parametrize(("width", "is_shown"), [(80, True), (100, True), (120, True), (60, False)])
@pytest.mark.parametrize("file_count", [1, 12])
def test_a_bar_has_ten_characters_at_least(width: int, is_shown: bool, file_count: int) -> None:
    sources = [Source(f"{i}.csv", "csv", size=32_600_000) for i in range(file_count)]
    bar = ProgressBar(sources, None, tqdm)
    bar.records, bar.bytes = 360_627, 34_000_000
    beside = bar._beside(bar._started_s + 2.369, width)
    line = tqdm.format_meter(
        16_800_000, 32_600_000, 2.4, ncols=width, unit_scale=True, bar_format=BAR, postfix=beside or None
    )
    bar._bar.close()
    assert len(line) == width
    assert "16.8M/32.6MB read" in line
    assert line.endswith("]")
    assert len(line.split("|")[1]) >= LEAST_BAR
    assert ("152,228 records/s" in line) == is_shown


def test_beside_a_narrow_bar_bad_rows_stay() -> None:
    bar = ProgressBar([Source("a.csv", "csv", size=100)], None, tqdm)
    bar.records, bar.bad = 360_627, 3
    assert bar._beside(bar._started_s + 2.0, 70) == "3 bad rows"
    bar._bar.close()
