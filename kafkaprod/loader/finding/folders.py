"""Take columns from the names of folders, `year=2024/region=eu`, as Hive, Spark, pyarrow, duckdb and polars do."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.source import BINARY_FORMATS, Source

TABLES: Final = ("csv", "tsv", *BINARY_FORMATS)
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")  # each has an int64


def folder_columns(below: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that the folders of a path are named for, as texts.

    Args:
        below: The part of the path that the user did not name, with the name of the file.

    Raises:
        LoadRefusedError: A name is no text.
    """
    found: dict[str, str | None] = {}
    for part in below.split(os.sep)[:-1]:
        name, equals, value = part.partition("=")
        if name and equals:
            text = _text(name, below)
            if text in found:  # pyarrow and duckdb take the first value, others the last
                raise LoadRefusedError(f"{below} is in two folders of column {text!r}: name the inner one, or the file")
            found[text] = None if value == NULL else _text(value, below)
    return tuple(found.items())


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is no data, by the rule of Spark, Hive and pyarrow.

    So begin the names of what jobs write and have not committed, of checkpoints and of metadata. A folder of a column
    whose name begins with an underscore is data.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _text(part: str, path: str) -> str:
    try:
        text = unquote(part, errors="strict")
        text.encode()
    except UnicodeError as error:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise LoadRefusedError(
            f"{shown}: a folder that is named for a column has a name that is not UTF-8: rename it, or name the files "
            "themselves"
        ) from error
    return text


def check_same_columns(sources: Sequence[Source]) -> None:
    """Refuse inputs of one directory or pattern in folders of different columns: one of them is at a wrong place.

    Raises:
        LoadRefusedError: There are two such inputs.
    """
    wanted = {name for name, _ in sources[0].folder_columns} if sources else set()
    for source in sources:
        found = {name for name, _ in source.folder_columns}
        if found != wanted:
            raise LoadRefusedError(
                f"{sources[0].name} and {source.name} are in folders of different columns, {_shown(wanted)} and "
                f"{_shown(found)}: load them one by one"
            )


def unsent_columns(sources: Sequence[Source], used: Collection[str]) -> list[str]:
    """Return the columns of folders that are lost, as lines and JSON are sent unchanged.

    Args:
        sources: The inputs.
        used: Columns that keys, headers or timestamps are made of.
    """
    lost = {name for source in sources if source.format not in TABLES for name, _ in source.folder_columns}
    return sorted(lost.difference(used))


def typed_columns(sources: Sequence[Source], types: Mapping[str, str]) -> list[Source]:
    """Return the inputs with integers in the columns whose values all are some; others stay text.

    Args:
        sources: The inputs, with columns of texts; those of Delta tables have types already.
        types: Column -> name of the type that the user gave it.

    Raises:
        LoadRefusedError: A value does not have that type.
    """
    values: dict[str, list[int | str | None]] = {}
    for source in sources:
        for name, value in source.folder_columns if source.table_version is None else ():
            values.setdefault(name, []).append(value)
    numbers = {
        name
        for name, found in values.items()
        if name not in types
        and any(value is not None for value in found)
        and all(value is None or _INTEGER.fullmatch(str(value)) for value in found)
    }
    return [
        replace(
            source,
            folder_columns=tuple(
                (name, _typed(value, name, types.get(name), source, is_number=name in numbers))
                for name, value in source.folder_columns
            ),
        )
        if source.folder_columns
        else source
        for source in sources
    ]


def _typed(value: Any, name: str, kind: str | None, source: Source, *, is_number: bool) -> Any:
    if kind is not None and not (kind in ("text", "string") and isinstance(value, str | None)):
        from kafkaprod.loader.formats.arrow_casts import cast_value
        from kafkaprod.loader.formats.arrow_rows import import_pyarrow

        import_pyarrow("--column-type")
        found = cast_value(value, name, kind, source.name)
        return found if source.format in TABLES else cast_value(found.as_py(), name, "text", source.name).as_py()
    return int(value) if is_number and source.table_version is None and value is not None else value


def _shown(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
