"""Write the report of a load as one HTML page that needs no server and nothing from elsewhere, for `--report`."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.source import Source
from kafkaprod.text import printable

MOST_FILES: Final = 1000  # that are listed
MOST_BARS: Final = 1000
_VIEWPORT: Final = '<meta name="viewport" content="width=device-width, initial-scale=1">'
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: 2px 1em 2px 0; vertical-align: top; overflow-wrap: anywhere; }
td.number { text-align: right; white-space: nowrap; width: 9em; }
.bar { background: #3b7dd8; height: 1em; min-width: 1px; }
.stopped { color: light-dark(#b00020, #ff8a8a); }
td.name { width: 10em; }
@media (max-width: 40em) {
  td.number { width: auto; }
  td.name { width: 7em; }
}
"""


def write_page(
    path: str,
    summary: Mapping[str, Any],
    sources: Sequence[Source],
    error: str = "",
    proof: Mapping[str, str] | None = None,
) -> None:
    """Write the page; a file of this name is replaced when the new one is whole.

    Args:
        path: Where to.
        summary: What `--json` prints.
        sources: The inputs.
        error: Why the load stopped; empty: it did not.
        proof: When, where and by what it was made: lines by name.

    Raises:
        LoadError: It cannot be written.
    """
    target = Path(path)
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, prefix=f".{target.name}.", delete=False, encoding="utf-8"
        ) as file:
            file.write(page_of(summary, sources, error, proof))
        os.replace(file.name, target)
    except OSError as problem:
        raise LoadError(f"--report {path} cannot be written: {problem.strerror}") from problem


def page_of(
    summary: Mapping[str, Any], sources: Sequence[Source], error: str = "", proof: Mapping[str, str] | None = None
) -> str:
    """Return the page as text; see write_page()."""
    title = f"Load into {summary['topic']}"
    state = "complete" if summary["complete"] else f'<span class="stopped">stopped. {_text(error)}</span>'
    counts = [
        ("records", f"{summary['records']:,}"),
        ("already there", f"{summary['already_there']:,}"),
        ("bad rows", f"{summary['bad_rows']:,}"),
        ("bytes", f"{summary['bytes']:,}"),
        ("seconds", f"{summary['seconds']:,}"),
        ("records a second", f"{summary['records_per_second']:,.0f}"),
        ("bytes a second", f"{summary['bytes_per_second']:,.0f}"),
        ("retries", f"{summary['retries']:,}"),
        *((f"latency {name}, ms", f"{value:,}") for name, value in summary["latency_ms"].items()),
    ]
    parts = [
        f"<h1>{_text(title)}</h1><p>{state}</p>",
        _table(counts),
        *((f"<h2>This load</h2>{_texts(proof)}",) if proof else ()),
        *(_spread(summary) if "sizes" in summary else ()),
        f"<h2>Inputs</h2><p>{len(sources):,}, {_shown_size(sources)}.</p>",
        _table([(each.name, "" if each.size is None else f"{each.size:,}") for each in sources[:MOST_FILES]]),
    ]
    head = f'<meta charset="utf-8">{_VIEWPORT}<title>{_text(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _spread(summary: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "<h2>Records by size</h2><p>Bytes of key, value and headers; of the records of this run.</p>",
        _bars([(f"less than {int(size):,}", count) for size, count in summary["sizes"].items()]),
        "<h2>Records by partition</h2>",
        _bars([(f"partition {number}", count) for number, count in summary["partitions"].items()]),
    )


def _shown_size(sources: Sequence[Source]) -> str:
    files = {source.path: source.size for source in sources}  # members of an archive have its size
    sizes = [size for size in files.values() if size is not None]
    return f"{sum(sizes):,} bytes" if len(sizes) == len(files) else "of unknown size"


def _text(text: str) -> str:
    return html.escape(printable(text))


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = (f'<tr><td>{_text(name)}</td><td class="number">{_text(value)}</td></tr>' for name, value in rows)
    return f"<table>{''.join(lines)}</table>"


def _texts(lines: Mapping[str, str]) -> str:
    rows = (f'<tr><td class="name">{_text(name)}</td><td>{_text(value)}</td></tr>' for name, value in lines.items())
    return f"<table>{''.join(rows)}</table>"


def _bars(rows: Sequence[tuple[str, int]]) -> str:
    if not rows:
        return "<p>None.</p>"
    most = max(count for _, count in rows) or 1
    lines = (
        f'<tr><td class="name">{_text(name)}</td><td class="number">{count:,}</td>'
        f'<td><div class="bar" style="width:{100 * count / most:.2f}%"></div></td></tr>'
        for name, count in rows[:MOST_BARS]
    )
    rest = f"<p>And {len(rows) - MOST_BARS:,} more.</p>" if len(rows) > MOST_BARS else ""
    return f"<table>{''.join(lines)}</table>{rest}"
