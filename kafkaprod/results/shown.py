"""The outcome of many rows as a small table in HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod.threads import importing

_MOST_PARTITIONS: Final = 20


def outcome_table(title: str, partitions: NDArray[Any], offsets: NDArray[Any], failed: NDArray[Any]) -> str:
    """Return a table with a row for each partition: records, offsets, failures.

    Args:
        title: Stands above it.
        partitions: The partition of each row; -1: it was not queued.
        offsets: The offset of each row; -1: none is known.
        failed: Whether each row has failed.
    """
    lines = []
    numbers = np.unique(partitions)
    for number in numbers[:_MOST_PARTITIONS]:
        chosen = partitions == number
        known = offsets[chosen & (offsets >= 0)]
        places = f"{known.min()} to {known.max()}" if len(known) else ""
        name = str(number) if number >= 0 else "none"
        cells = (name, np.count_nonzero(chosen), places, np.count_nonzero(failed[chosen]))
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    if len(numbers) > _MOST_PARTITIONS:
        lines.append(f"<tr><td>and {len(numbers) - _MOST_PARTITIONS} more</td></tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("partition", "records", "offsets", "failed"))
    return f"<div>{_escape()(title)}</div><table><tr>{heads}</tr>{''.join(lines)}</table>"


@importing
def _escape() -> Callable[[str], str]:
    from html import escape  # 3 ms, and only notebooks want it

    return escape
