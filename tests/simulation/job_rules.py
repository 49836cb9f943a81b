"""Rules of writes that happen once, each with a way to switch it off: the seeds of `--jobs` must notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from kafkaprod.marks import write
from kafkaprod.marks.write import WriteTry
from tests.simulation.rules import replaced


def _from_the_first_row(opened: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: WriteTry, *topics: str) -> None:
        opened(self, *topics)
        if self.tap.is_rehearsal and not self.is_repetition:
            self.tap.is_rehearsal = False
            self._begin()

    return wrong


JOB_RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "a mark is committed with its rows": lambda: replaced(write.steps, "send_mark", lambda *_: {}),
    "a write continues behind the parts that are there": lambda: replaced(
        WriteTry, "open", _from_the_first_row(WriteTry.open)
    ),
}
