"""Whether a mark that is found is that of the same rows. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from kafkaprod.errors import WriteConflictError, WriteStaleError
from kafkaprod.marks.mark import Mark
from kafkaprod.text import counted

NONE: Final = "none"
COUNT: Final = "count"
CONTENT: Final = "content"
VERIFY: Final = (NONE, COUNT, CONTENT)


def check_cluster(mark: Mark, cluster: str, topic_ids: Mapping[str, str]) -> None:
    """Check that a mark is of this cluster, and of the topics that have these names now.

    Raises:
        WriteStaleError: It is not: whether these rows are in the topics that are there now is not known.
    """
    if mark.cluster and cluster and mark.cluster != cluster:
        raise WriteStaleError(
            f"the mark of write {mark.write_id!r} is of cluster {mark.cluster}, and this is {cluster}: groups were "
            "copied from one to the other, or the address leads elsewhere. Nothing was written",
            write_id=mark.write_id,
        )
    for name, topic_id in mark.topics.items():
        now = topic_ids.get(name, topic_id)
        if topic_id and now and now != topic_id:
            raise WriteStaleError(
                f"write {mark.write_id!r} was committed to topic {name!r} with id {topic_id}, and the topic of this "
                f"name has id {now}: it was made again. Nothing was written. `kafkaprod writes forget "
                f"{mark.write_id!r}` lets it be written to the new one",
                write_id=mark.write_id,
            )


def check_rows(mark: Mark, verify: str, topics: Iterable[str], rows: int, digest: str) -> None:
    """Compare the rows of a repetition with the mark.

    Args:
        mark: The mark.
        verify: `content`, `count` or `none`.
        topics, rows, digest: What the repetition has.

    Raises:
        WriteConflictError: They are other rows.
    """
    if verify == NONE:
        return
    if rows and set(topics) != set(mark.topics):
        raise _conflict(mark, "topic", f"these are for {_named(topics)}")
    if rows != mark.rows:
        raise _conflict(mark, "rows", f"this one has {counted(rows, 'row')}")
    if verify == CONTENT and mark.digest and digest != mark.digest:
        raise _conflict(mark, "content", "these have other contents, or another order")


def refuse_cut(mark: Mark, rows: int) -> NoReturn:
    """Refuse a call whose rows are partly committed: it cannot be cut.

    Args:
        mark: The mark of the last part.
        rows: How many rows there are with those of the call.

    Raises:
        WriteConflictError: Always.
    """
    raise _conflict(
        mark, "rows", f"that is a part of the write, and ends within a call of this one, whose last row is {rows}"
    )


def when(mark: Mark) -> str:
    """Return the time at which a write was committed, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(mark.written_ms / 1000))


def _conflict(mark: Mark, reason: str, difference: str) -> WriteConflictError:
    by = f" by {mark.written_by}" if mark.written_by else ""
    return WriteConflictError(
        f"write {mark.write_id!r} was committed at {when(mark)}{by} with {counted(mark.rows, 'row')} into "
        f"{_named(mark.topics)}; {difference}. Nothing was written. If these are new rows, give them another write_id; "
        "if the input has no fixed order, sort it",
        write_id=mark.write_id,
        reason=reason,
    )


def _named(topics: Iterable[str]) -> str:
    return ", ".join(map(repr, topics)) or "no topic"
