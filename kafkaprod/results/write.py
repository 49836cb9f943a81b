"""The outcome of a write that happens once, however often it is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What is known of a write that is committed.

    Attributes:
        write_id: Its id.
        already_written: Another try had committed it: this one wrote nothing.
        rows: How many records the write has.
        written_ms: When it was committed, by the clock of the try that did; ms since 1970.
        written_by: Client id, host and process of that try.
        digest: The digest of the records; empty unless it was made with `verify="content"`.
        parts: In how many transactions it was committed.
    """

    write_id: str
    already_written: bool
    rows: int
    written_ms: int
    written_by: str
    digest: str
    parts: int = 1
