"""Define how far a transactional load has come, as the metadata of a committed offset of its group.

It is committed in the same transaction as the rows before it, so the two cannot differ. Brokers take 4,096 bytes of
metadata (`offset.metadata.max.bytes`), so inputs and options are in it as digests only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any, Final, Self

from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Position

FORMAT_VERSION: Final = 3
DIGEST_BYTES: Final = 64 << 10  # of an input's beginning and end
ENDS_CHARS: Final = 400  # of the ends of partitions; others are not kept
_LARGEST: Final = (1 << 63) - 1
_NEW_IN: Final[dict[int, dict[str, object]]] = {  # what a version has that those before it have not
    2: {**dict.fromkeys(("cluster_id", "times", "names", "ends", "earlier", "digest"), ""), "read_bytes": 0},
    3: {"files": "", "pipes": ""},
}


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """Holds the progress of a transactional load.

    Attributes:
        source, row, offset, rows_before, read_bytes, digest, pipes: Where reading continues; see Position.
        next_row: First row of the source that is not committed; at least `row`, because a commit may be in a block.
        partition_count: Number of partitions when the load began; rows are spread over these.
        run_rows: Number of consecutive rows without a key for one partition.
        topic_id: The topic's id, if brokers send one.
        inputs, options: Digests of what must be the same to continue.
        record_limit, needs_keys: What the topic took when the load began; decides which rows are bad.
        sent_count, sent_bytes, bad_count: So far.
        dead_letter_bytes: Length of the dead-letter file.
        done_at: When everything was committed, as local time; empty before.
        cluster_id: The cluster's id, if brokers send one.
        times, names, files: Digests of the times, the names and some of the inputs; see `positions.Inputs`.
        ends: Where partitions of the topic ended behind the last commit: `number:offset number:offset`.
        earlier: Inputs that were loaded before; see `positions.LoadedInput`.
    """

    partition_count: int
    run_rows: int
    topic_id: str
    inputs: str
    options: str
    record_limit: int
    needs_keys: bool
    source: int = 0
    row: int = 0
    offset: int = 0
    rows_before: int = 0
    next_row: int = 0
    sent_count: int = 0
    sent_bytes: int = 0
    bad_count: int = 0
    dead_letter_bytes: int = 0
    done_at: str = ""
    cluster_id: str = ""
    times: str = ""
    names: str = ""
    files: str = ""
    ends: str = ""
    earlier: str = ""
    read_bytes: int = 0
    digest: str = ""
    pipes: str = ""

    @property
    def position(self) -> Position:
        """Return where reading continues."""
        reached = self.source, self.row, self.offset, self.rows_before
        return Position(*reached, self.read_bytes, self.digest, self.pipes)

    @property
    def rank(self) -> int:
        """Return how many rows of the load are committed, bad ones included: the committed offset."""
        return self.rows_before + self.next_row

    @property
    def is_begun(self) -> bool:
        """Return whether a row was committed or put aside."""
        return bool(self.rank or self.done_at)

    def moved(self, position: Position, next_row: int | None = None) -> Self:
        """Return one that is at another position.

        Args:
            position: Where reading continues.
            next_row: See there; None: the position's.
        """
        return replace(self, next_row=position.row if next_row is None else next_row, **asdict(position))

    def ending_at(self, ends: Mapping[int, int]) -> Self:
        """Return one that knows where partitions end now: those in `ends`, and the others as they were."""
        text = ""
        for number, end in {**ends, **{n: end for n, end in self.known_ends().items() if n not in ends}}.items():
            more = f"{number}:{end} "
            if len(text) + len(more) <= ENDS_CHARS:
                text += more
        return replace(self, ends=text.strip())

    def known_ends(self) -> dict[int, int]:
        """Return where partitions ended behind the last commit, by number."""
        return _parsed_ends(self.ends)

    def finished(self) -> Self:
        """Return the committed position of a complete load."""
        return replace(self, done_at=datetime.now().astimezone().isoformat(" ", "seconds"))

    def to_text(self) -> str:
        """Return the metadata of the offset."""
        return json.dumps({"kafkaprod-load": FORMAT_VERSION, **asdict(self)}, separators=(",", ":"))

    def _check_texts(self) -> None:
        """Raise ValueError where a text cannot be what `to_text` wrote."""
        for name, parse in (("inputs", bytes.fromhex), ("done_at", _parsed_time), ("ends", _parsed_ends)):
            try:
                parse(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name} is {getattr(self, name)!r:.40}") from error

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the committed position of a text. Raises ValueError for anything that `to_text` did not write."""
        try:
            data = json.loads(text)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        version = data.pop("kafkaprod-load", None) if isinstance(data, dict) else None
        if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
            raise ValueError("no load of this version wrote it")
        for later in range(version + 1, FORMAT_VERSION + 1):
            data |= _NEW_IN[later]
        kinds: dict[str, type] = {"str": str, "int": int, "bool": bool}
        if data.keys() != {each.name for each in fields(cls)}:
            raise ValueError("its fields are not those of a committed position")
        for each in fields(cls):
            value = data[each.name]
            if type(value) is not kinds[str(each.type)] or (type(value) is int and not 0 <= value <= _LARGEST):
                raise ValueError(f"{each.name} is {value!r:.40}")
        committed = cls(**data)
        if not committed.partition_count or not committed.run_rows or committed.next_row < committed.row:
            raise ValueError("its numbers do not agree")
        committed._check_texts()
        return committed


def _parsed_time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _parsed_ends(text: str) -> dict[int, int]:
    pairs = (part.partition(":") for part in text.split())
    return {int(number): int(end) for number, _, end in pairs}


def digest_of(value: Mapping[str, Any]) -> str:
    """Return a digest of what json.dumps writes."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def digests_of_inputs(sources: Sequence[Source]) -> tuple[str, list[str]]:
    """Return a digest of the inputs: names without directories, sizes, and the bytes at both ends of each.

    A copy of the same files on another machine has the same digest. Of a pipe only the name counts.

    Returns:
        The digest of all, and the one that each would have by itself.

    Raises:
        OSError, LoadError: An input cannot be read.
    """
    whole, parts = hashlib.sha256(), []
    for source in sources:
        name = source.path.rpartition("/")[2]
        described = [name, source.member, source.format, source.compression, source.size, source.encoding]
        if source.remote is not None:
            described.append(source.remote.validator)
        content = json.dumps(described).encode() + b"\n"
        if source.pipe is None and source.size is not None:
            content += _ends_of(source)
        whole.update(content)
        parts.append(hashlib.sha256(content).hexdigest()[:32])
    return whole.hexdigest()[:32], parts


def _ends_of(source: Source) -> bytes:
    with open_source(replace(source, compression="none", member="", encoding=None)) as file:
        head = file.read(DIGEST_BYTES)
        file.seek(max((source.size or 0) - DIGEST_BYTES, 0))
        return head + file.read(DIGEST_BYTES)


def read_position(text: str, group: str) -> CommittedPosition:
    """Return the position that is in the metadata of a committed offset. Raises LoadError naming the group."""
    try:
        return CommittedPosition.from_text(text)
    except ValueError as error:
        raise LoadError(
            f"the committed offset of group {group!r} is not one of a load ({error}): give each load its own "
            "--transactional-id, or start over with --restart"
        ) from error
