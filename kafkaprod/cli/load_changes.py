"""Name the options of a load that differ from those of an earlier run, in the words of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

NOT_GIVEN: Final = "not given"
MOST_SHOWN: Final = 60  # characters of a value
_MISSING: Final = object()


def _as_template(value: Any) -> str:
    parts = list(value["parts"])
    if parts[::2] == ["", ""]:
        return str(parts[1])
    return "".join(part if place % 2 == 0 else f"{{{part}}}" for place, part in enumerate(parts))


def _as_headers(value: Any) -> str:
    return ", ".join(f"{name}={_as_template(template)}" for name, template in value)


def _as_pairs(value: Any) -> str:
    return ", ".join(f"{name}={kind}" for name, kind in value.items())


def _as_list(value: Any) -> str:
    return ",".join(value)


def _as_numbers(value: Any) -> str:
    return ",".join(map(str, value))


def _as_byte(value: Any) -> str:
    return repr(chr(value))


def _as_flag(value: Any) -> str:
    return "given" if value else NOT_GIVEN


def _as_text(value: Any) -> str:
    return str(value)


# The field of the manifest, the option that sets it, and how a value of it is written on the command line.
_OPTIONS: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("plan.value", "--value", _as_text),
    ("plan.key", "--key", _as_template),
    ("plan.headers", "-H", _as_headers),
    ("plan.timestamp", "--timestamp", _as_text),
    ("plan.timestamp_unit", "--timestamp-unit", _as_text),
    ("plan.partition", "--partition-column", _as_text),
    ("plan.delimiter", "-D", _as_byte),
    ("plan.avro_schema", "--schema", _as_text),
    ("plan.avro_schema_id", "--schema-id", _as_text),
    ("plan.max_row_bytes", "--max-row-bytes", _as_text),
    ("separator", "--separator", repr),
    ("quote", "--quote", repr),
    ("column_types", "--column-type", _as_pairs),
    ("infer_types", "--infer-types", _as_flag),
    ("columns", "--columns", _as_list),
    ("column_names", "--columns or --column-names", _as_list),
    ("nulls", "--null", _as_list),
    ("skip_lines", "--skip-lines", _as_text),
    ("comment", "--comment", repr),
    ("escape", "--escape", repr),
    ("elements", "--elements", _as_text),
    ("forms", "what is written in another form since version 0.1", _as_list),
    ("folder_columns", "columns of folders' names", _as_list),
    ("table_versions", "--table-version", _as_numbers),
    ("table_columns", "columns of the table", _as_list),
    ("partition", "--partition", _as_text),
    ("engine", "--engine", _as_text),
)
_DERIVED: Final = {"plan.fields", "plan.skips_blank_rows", "plan.columns", "plan.types"}  # from the others
_KNOWN: Final = {path: (flag, written) for path, flag, written in _OPTIONS}


def changed_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each option that has another value, with both values.

    Args:
        before: The options of the manifest; what only it has is not an option.
        now: The options of this run.
    """
    earlier, later = dict(_flat(before)), dict(_flat(now))
    wanted = {path for path in {*earlier, *later} if path.partition(".")[0] in now or path in _KNOWN} - _DERIVED
    differing = [path for path in wanted if earlier.get(path, _MISSING) != later.get(path, _MISSING)]
    order = [path for path, _, _ in _OPTIONS]
    differing.sort(key=lambda path: (order.index(path) if path in order else len(order), path))
    return [_phrase(path, earlier.get(path), later.get(path)) for path in differing]


def _flat(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if name == "plan" and isinstance(value, Mapping):
            yield from ((f"plan.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def _phrase(path: str, before: Any, now: Any) -> str:
    flag, written = _KNOWN.get(path, (path, json.dumps))
    return f"{flag} was {_shown(before, written)}, now {_shown(now, written)}"


def _shown(value: Any, written: Callable[[Any], str]) -> str:
    if value is None or value in ("", [], {}):
        return NOT_GIVEN
    try:
        text = written(value)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):  # of a damaged manifest
        text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
