"""Show the first records of a load as they would be sent, for --dry-run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from kafkaprod.loader.inputs import Source
from kafkaprod.loader.readers import ReadOptions, read_rows
from kafkaprod.loader.rows import RowBlock


def print_preview(
    sources: Sequence[Source], reading: ReadOptions, partition: int | None, count: int, out: IO[str]
) -> None:
    """Print the first `count` records and the bad rows before them. Raises LoadError, OSError."""
    left = count
    for source in sources:
        for block in read_rows(source, reading):
            for bad in block.bad:
                if left == count or bad.row <= int(block.numbers[min(left, block.row_count - 1)]):
                    print(f"bad: {bad}", file=out)
            for place in range(min(left, block.row_count)):
                _print_record(source, block, place, partition, out)
            left -= min(left, block.row_count)
            if left == 0:
                return


def _print_record(source: Source, block: RowBlock, place: int, partition: int | None, out: IO[str]) -> None:
    print(f"{source.name}, row {block.numbers[place] + 1}", file=out)
    if partition is not None or block.partitions is not None:
        print(f"  partition  {partition if block.partitions is None else block.partitions[place]}", file=out)
    if block.key is not None:
        print(f"  key        {_shown(block.key[place])}", file=out)
    for name, column in block.headers:
        print(f"  header     {name}={_shown(column[place])}", file=out)
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
