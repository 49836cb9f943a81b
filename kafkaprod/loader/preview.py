"""Show the first records of a load as they would be sent, for --dry-run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.errors import BadRow, LoadError
from kafkaprod.loader.opening.source import Source
from kafkaprod.text import printable


def print_preview(
    sources: Sequence[Source], reading: ReadOptions, partition: int | None, count: int, out: IO[str], *, stops: bool
) -> int:
    """Print the first `count` records, and the bad rows before them or between them.

    Args:
        sources: The inputs.
        reading: How to read them.
        partition: The partition of all records; None: they have none yet.
        count: How many records.
        out: Where to.
        stops: Whether a load would stop at a bad row.

    Returns:
        How many bad rows were printed.

    Raises:
        LoadError: The load would stop there.
        OSError: An input cannot be read.
    """
    left, bad_count = count, 0
    for source in sources:
        for block in read_rows(source, reading):
            shown = min(left, block.row_count)
            last = int(block.numbers[shown - 1]) if shown == left else block.end_row
            bad = {row.row: row for row in reversed(block.located(row for row in block.bad if row.row < last))}
            places = {int(block.numbers[place]): place for place in range(shown)}
            for number in sorted({*bad, *places}):
                if number in bad:
                    bad_count += 1
                    _print_bad(bad[number], out, stops=stops)
                else:
                    _print_record(source, block, places[number], partition, out)
            left -= shown
            if left == 0:
                return bad_count
    return bad_count


def _print_bad(bad: BadRow, out: IO[str], *, stops: bool) -> None:
    print(printable(f"bad: {bad}"), file=out)
    if stops:
        raise LoadError(f"{bad}. The load would stop here; --on-error skip or dead-letter=FILE continues after it")


def _print_record(source: Source, block: RowBlock, place: int, partition: int | None, out: IO[str]) -> None:
    print(f"{printable(source.name)}, row {block.numbers[place] + 1}", file=out)
    if partition is not None or block.partitions is not None:
        print(f"  partition  {partition if block.partitions is None else block.partitions[place]}", file=out)
    if block.key is not None:
        print(f"  key        {_shown(block.key[place])}", file=out)
    for name, column in block.headers:
        print(f"  header     {printable(name)}={_shown(column[place])}", file=out)
    if block.timestamps is not None:
        print(f"  timestamp  {block.timestamps[place]}", file=out)
    print(f"  value      {_shown(None if block.value is None else block.value[place])}", file=out)


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return repr(data)
