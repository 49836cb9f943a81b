"""Say in which way the rows of a judge differ from those of the loader."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from tests.support.loader.judges import INSTANT

MOST_CELLS: Final = 200_000


def is_same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether these are the same rows; a folder's files may come in another order."""
    return list(ours) == list(theirs) or (len(theirs) == len(ours) and _sorted(ours) == _sorted(theirs))


def without_nulls(value: Any) -> Any:
    """A value of JSON without the null fields, which are the same as none to who has one schema for all documents."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def kinds_of_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[list[str], str]:
    """In which ways rows differ, and one example.

    Args:
        ours: Those of the loader.
        theirs: Those of a judge.

    Returns:
        Kinds such as "row count", "columns", "null for text": the loader's side comes first.
    """
    if len(ours) != len(theirs):
        return ["row count"], f"{len(ours)} rows, not {len(theirs)}"
    found = list(islice(_cells(ours, theirs, ""), MOST_CELLS))
    ordered = list(islice(_cells(sorted(ours, key=_shown), sorted(theirs, key=_shown), ""), MOST_CELLS))
    if len(ordered) < len(found):  # they are in another order
        found = ordered
    kinds: dict[str, str] = {}
    for name, a, b in found:
        kinds.setdefault(_kind(a, b), f"{name}: {a!r:.80}, not {b!r:.80}")
    return sorted(kinds), next(iter(kinds.values()), "")


def _cells(ours: Any, theirs: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ."""
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            yield from _cells(ours[key], theirs[key], f"{name}.{key}")
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from _cells(a, b, f"{name}[{place}]")
    else:
        yield name, ours, theirs


def _kind(ours: Any, theirs: Any) -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return "field names"
    if isinstance(ours, Decimal) and isinstance(theirs, Decimal):
        return "digits" if math.isclose(ours, theirs, rel_tol=1e-6) else "another number"
    a, b = _type(ours), _type(theirs)
    if (a, b) == ("time", "time"):
        return "zone" if ours.rstrip("Z") == theirs.rstrip("Z") else "another time"
    return f"another {a}" if a == b else f"{a} for {b}"


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Decimal | int | float):
        return "number"
    if isinstance(value, str):
        return "time" if INSTANT.fullmatch(value) else "text" if value else "empty text"
    return "object" if isinstance(value, dict) else "array"


def _sorted(rows: Sequence[Any]) -> list[str]:
    return sorted(map(_shown, rows))


def _shown(row: Any) -> str:
    return json.dumps(row, sort_keys=True, default=repr)  # a number is no text
