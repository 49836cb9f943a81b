"""Define the manifest: how far a load has come, kept on disk so that another process can continue it.

It maps a position of the input (source, row, byte) to what the log of each partition has for certain. It also has the
producer id, which the load keeps for its whole life: see `recovery`. `manifest_file` reads and writes it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from types import NoneType
from typing import Any, Final

FORMAT_VERSION: Final = 1
CHECKSUM: Final = "checksum"
_LARGEST: Final = (1 << 63) - 1


@dataclass(slots=True)
class Position:
    """Locates the first row that is not known to be in the log.

    Attributes:
        source: Number of the input.
        row: In it, from 0.
        offset: Where it begins in the input's text.
        rows_before: Rows of all inputs before this one.
        read_bytes: Number of bytes of a pipe that were read by then; not fewer than those of the rows.
        digest: Digest of these bytes; empty: not known.
        pipes: Digest of all pipes before this input; empty: there is none, or it is not known.
    """

    source: int = 0
    row: int = 0
    offset: int = 0
    rows_before: int = 0
    read_bytes: int = 0
    digest: str = ""
    pipes: str = ""


@dataclass(slots=True)
class PartitionState:
    """Holds what is certain about a partition.

    Attributes:
        rows: Number of rows before the manifest's position that belong here.
        sent: Number of rows of the load in the log before `offset`; not fewer than `rows`.
        offset: Where the rest of the log begins.
    """

    rows: int
    sent: int
    offset: int


@dataclass(slots=True)
class Manifest:
    """Holds the progress of a load; see the module.

    Attributes:
        topic: The load's topic, with its id if brokers send one.
        cluster_id: The cluster's id; None if brokers do not send it.
        producer_id: The producer id of the load, with its epoch; -1 for a load that is never resumed.
        partition_count: Number of partitions when the load began; rows are spread over these.
        run_rows: Number of consecutive rows without a key for one partition.
        options: What decides which records a row becomes.
        inputs: What is loaded.
        position: See Position.
        partitions: By number.
        refused: (number of the input, row, why) of rows that a broker refused.
        batch_bytes: Size of batches where the topic takes less than the options set; None: as set.
        sent_count, bad_count: Rows that were sent, and that were not.
        sent_bytes: Bytes of the rows sent.
        dead_letter_bytes: Length of the dead-letter file at `position`.
        is_done: Nothing is left.
        done_at: When that was, as local time; empty before.
    """

    topic: str
    topic_id: str | None
    cluster_id: str | None
    producer_id: int
    producer_epoch: int
    partition_count: int
    run_rows: int
    options: dict[str, Any]
    inputs: list[dict[str, Any]]
    position: Position
    partitions: dict[int, PartitionState]
    refused: list[tuple[int, int, str]] = field(default_factory=list)
    batch_bytes: int | None = None
    sent_count: int = 0
    bad_count: int = 0
    sent_bytes: int = 0
    dead_letter_bytes: int = 0
    is_done: bool = False
    done_at: str = ""

    def finish(self) -> None:
        """Note that nothing is left."""
        self.is_done = True
        self.done_at = datetime.now().astimezone().isoformat(" ", "seconds")

    def to_json(self) -> str:
        """Return the text that is written to the file."""
        data = {"version": FORMAT_VERSION, **asdict(self)}
        return json.dumps({**data, CHECKSUM: _checksum(data)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest of a text. Raises ValueError for anything that `to_json` did not write."""
        try:
            data = json.loads(text)
            checksum = data.pop(CHECKSUM, None) if isinstance(data, dict) else None  # versions before 0.3 wrote none
            if checksum is not None and checksum != _checksum(data):
                raise ValueError("it was changed, or a part of it was lost: its checksum is not that of its content")
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        _check_types(data, _TYPES | {"version": int}, "the manifest")
        if data.pop("version") != FORMAT_VERSION:
            raise ValueError("it was written by another version")
        data["position"] = _checked_position(data["position"])
        data["partitions"] = {
            int(number): _checked_counts(PartitionState, state)
            for number, state in data["partitions"].items()
            if number.isdecimal()
        }
        data["refused"] = [_checked_row(row) for row in data["refused"]]
        manifest = cls(**data)
        manifest._check_values()
        return manifest

    def _check_values(self) -> None:
        for name in ("sent_count", "bad_count", "sent_bytes", "dead_letter_bytes"):
            _check_count(name, getattr(self, name))
        if not 0 < self.run_rows <= _LARGEST:
            raise ValueError(f"run_rows is {self.run_rows}")
        if not (-1 <= self.producer_id <= _LARGEST and -1 <= self.producer_epoch < 1 << 15):
            raise ValueError(f"the producer id is {self.producer_id}, its epoch {self.producer_epoch}")
        has_all = len(self.partitions) == self.partition_count == max(self.partitions, default=-1) + 1
        if not has_all or any(state.sent < state.rows for state in self.partitions.values()):
            raise ValueError(f"the states of the {self.partition_count} partitions do not agree")
        if not all(isinstance(each, dict) for each in self.inputs) or self.position.source > len(self.inputs):
            raise ValueError("its inputs and its position do not belong together")


def _checksum(data: dict[str, Any]) -> str:
    """Return what shows that nothing else was written: a position that is wrong by a row loses that row."""
    return hashlib.sha256(json.dumps(data, separators=(",", ":")).encode()).hexdigest()[:32]


_OPTIONAL_TEXT: Final = (str, NoneType)
_TYPES: Final[dict[str, Any]] = {
    "topic": str,
    "topic_id": _OPTIONAL_TEXT,
    "cluster_id": _OPTIONAL_TEXT,
    "producer_id": int,
    "producer_epoch": int,
    "partition_count": int,
    "run_rows": int,
    "options": dict,
    "inputs": list,
    "position": dict,
    "partitions": dict,
    "refused": list,
    "batch_bytes": (int, NoneType),
    "sent_count": int,
    "bad_count": int,
    "sent_bytes": int,
    "dead_letter_bytes": int,
    "is_done": bool,
    "done_at": str,
}


def _check_types(data: Any, types: dict[str, Any], what: str) -> None:
    if not isinstance(data, dict) or data.keys() != types.keys():
        raise ValueError(f"{what} does not have the fields {', '.join(types)}")
    for name, kind in types.items():
        if not isinstance(data[name], kind) or (isinstance(data[name], bool) and kind is not bool):
            raise ValueError(f"{name} is {data[name]!r:.40}")


def _checked_position(data: Any) -> Position:
    digests = {name: data.pop(name, "") for name in ("digest", "pipes")}
    for name, digest in digests.items():
        if not isinstance(digest, str):
            raise ValueError(f"{name} of the position is {digest!r:.40}")
    names = ("source", "row", "offset", "rows_before", "read_bytes")
    data.setdefault("read_bytes", 0)  # of versions before 0.3
    _check_types(data, dict.fromkeys(names, int), "Position")
    for name in names:
        _check_count(name, data[name])
    return Position(**data, **digests)


def _checked_counts(kind: type[Any], data: Any) -> Any:
    """Return a PartitionState, which consists of counts."""
    names = [each.name for each in fields(kind)]
    _check_types(data, dict.fromkeys(names, int), kind.__name__)
    for name in names:
        _check_count(name, data[name])
    return kind(**data)


def _checked_row(row: Any) -> tuple[int, int, str]:
    if not isinstance(row, list) or [type(part) for part in row] != [int, int, str]:
        raise ValueError(f"a refused row is {row!r:.40}")
    source, number, why = row
    _check_count("the input of a refused row", source)
    _check_count("the number of a refused row", number)
    return source, number, why


def _check_count(name: str, count: int) -> None:
    if not 0 <= count <= _LARGEST:
        raise ValueError(f"{name} is {count}")
