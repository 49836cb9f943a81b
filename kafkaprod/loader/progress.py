"""Show how a load advances: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import IO, Any, Final

from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Position
from kafkaprod.text import counted, printable

LINE_EVERY_S: Final = 5.0
BAR_EVERY_S: Final = 0.1
# Without the rate of the input's bytes, which is not that of the values: only one of them is shown.
BAR: Final = "{l_bar}{bar}| {n_fmt}/{total_fmt}B read [{elapsed}<{remaining}{postfix}]"
LEAST_BAR: Final = 10  # characters
_AROUND_BAR: Final = len("100%|| 999.9M/999.9MB read [00:00:00<00:00:00, ]")


def fitting(width: int, parts: Sequence[tuple[int, str]]) -> str:
    """Return the parts that fit beside a bar, joined; the empty ones and those of the highest ranks are left out.

    Args:
        width: How many characters the terminal has in a line.
        parts: Rank and text of each, in the order in which they are shown.
    """
    kept = [part for part in parts if part[1]]
    while kept and _AROUND_BAR + LEAST_BAR + len(", ".join(text for _, text in kept)) > width:
        kept.remove(max(kept))
    return ", ".join(text for _, text in kept)


class Quiet:
    """Shows nothing."""

    def on_block(self, record_count: int, byte_count: int, position: Position) -> None:
        pass

    def on_bad(self) -> None:
        pass

    def on_retries(self, count: int) -> None:
        pass

    def show(self, text: str) -> None:
        """Print a line on stderr."""
        print(printable(text), file=sys.stderr)

    def close(self) -> None:
        """Stop: the load is over."""


class ProgressLines(Quiet):
    """Prints a line every LINE_EVERY_S.

    Args:
        sources: The inputs, in order.
        start: Where the load continues; None: it begins.
        out: Where to print; None: stderr.
    """

    def __init__(self, sources: Sequence[Source], start: Position | None = None, out: IO[str] | None = None) -> None:
        self._sizes = [source.size for source in sources]
        self._is_text = [_has_offsets(source) for source in sources]
        self._out = sys.stderr if out is None else out
        self._started_s = time.monotonic()
        self._next_s = self._started_s + LINE_EVERY_S
        self.records = 0
        self.bytes = 0
        self.bad = 0
        self.retries = 0
        self._position = Position() if start is None else start
        self._start_share = self.done_share() or 0.0

    def on_block(self, record_count: int, byte_count: int, position: Position) -> None:
        self.records += record_count
        self.bytes += byte_count
        self._position = position
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            self._show(now_s)

    def on_bad(self) -> None:
        self.bad += 1

    def on_retries(self, count: int) -> None:
        self.retries = count

    _interval_s = LINE_EVERY_S

    def done_share(self) -> float | None:
        """Return the share of the input's bytes that the producer has; None where that is not known.

        Of several files that are not texts only the whole ones count.
        """
        total, place = sum(size or 0 for size in self._sizes), self._position.source
        if None in self._sizes or not total or (len(self._sizes) == 1 and not self._is_text[0]):
            return None
        before = sum(size or 0 for size in self._sizes[:place])
        within = self._position.offset if place < len(self._sizes) and self._is_text[place] else 0
        return min((before + within) / total, 1.0)

    def _files(self) -> str:
        count = len(self._sizes)
        return f"file {min(self._position.source + 1, count):,} of {count:,}" if count > 1 else ""

    def _rates(self, now_s: float) -> tuple[str, str]:
        seconds = max(now_s - self._started_s, 1e-9)
        return f"{self.records / seconds:,.0f} records/s", f"{self.bytes / 1e6 / seconds:,.1f} MB/s"

    def _troubles(self) -> tuple[str, str]:
        retries = counted(self.retries, "retry", "retries") if self.retries else ""
        return retries, counted(self.bad, "bad row") if self.bad else ""

    def _show(self, now_s: float) -> None:
        share = self.done_share()
        seconds = now_s - self._started_s
        records = counted(self.records, "record")
        records += f", {self.bytes / 1e6:,.1f} MB"
        done = (share or 0.0) - self._start_share
        left = f"{seconds * (1 - (share or 0.0)) / done:,.0f} s left" if done > 0 else ""
        where = (self._files(), "" if share is None else f"{share:.1%}", records)
        parts = (*where, *self._rates(now_s), *self._troubles(), left)
        print(", ".join(filter(None, parts)), file=self._out, flush=True)


class ProgressBar(ProgressLines):
    """Draws a bar; needs tqdm."""

    _interval_s = BAR_EVERY_S

    def __init__(self, sources: Sequence[Source], start: Position | None, tqdm: Any) -> None:
        super().__init__(sources, start)
        self._next_s = self._started_s
        is_known = self.done_share() is not None
        total = sum(size or 0 for size in self._sizes) if is_known else 0
        self._bar = tqdm(
            total=total if is_known else None,
            unit="B" if is_known else " records",
            unit_scale=True,
            file=sys.stderr,
            dynamic_ncols=True,
            mininterval=BAR_EVERY_S,
            initial=int(self._start_share * total),
            bar_format=BAR if is_known else None,
        )

    def _show(self, now_s: float) -> None:
        share = self.done_share()
        self._bar.n = self.records if share is None else int(share * self._bar.total)
        self._bar.set_postfix_str(self._beside(now_s, _width()), refresh=False)
        self._bar.refresh()

    def _beside(self, now_s: float, width: int) -> str:
        """Return what is shown beside the bar: troubles stay longest, then the rate of records."""
        records_rate, bytes_rate = self._rates(now_s)
        retries, bad = self._troubles()
        parts = (self._files(), counted(self.records, "record"), records_rate, bytes_rate, retries, bad)
        return fitting(width, tuple(zip((3, 4, 2, 5, 1, 0), parts, strict=True)))

    def show(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it is at the end."""
        self._show(time.monotonic())
        self._bar.close()


def make_progress(sources: Sequence[Source], start: Position | None = None, *, is_quiet: bool) -> Quiet:
    """Return a bar where stderr is a terminal and tqdm is installed, else lines; nothing if quiet.

    Args:
        sources: The inputs, in order.
        start: Where the load continues; None: it begins.
        is_quiet: Show no progress.
    """
    if is_quiet:
        return Quiet()
    if sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns:  # some know no width: no bar fits
        try:
            from tqdm import tqdm
        except ImportError:
            pass
        else:
            return ProgressBar(sources, start, tqdm)
    return ProgressLines(sources, start)


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:  # the terminal is gone, the load is not
        return 80


def _has_offsets(source: Source) -> bool:
    return source.has_text_offsets and source.format in ("lines", "jsonl", "json", "csv", "tsv")
