"""Find what a transactional id has loaded and what it loads now: one id may be used for many inputs.

Each partition of the load's topic has room for one committed position of the group: that of a load that stopped, or of
one that is complete, with a list of those that were complete before it. So the first run of

    for file in *.csv; do kafkaprod load $file --transactional-id nightly --resume ...; done

loads each file, the second one nothing, and a file whose load stopped does not keep others from being loaded. Every
commit repeats the positions that it does not change, so that none expires while the id is in use.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Final, Self

from kafkaprod.admin.client import ClusterClient
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.committed_position import CommittedPosition, digests_of_inputs, read_position
from kafkaprod.marks.looks import read_offsets
from kafkaprod.text import counted

SETTLED_MS: Final = 10_000  # behind init_transactions an offset is held only until its decided transaction is applied
MAX_PLACES: Final = 16  # partitions of the topic that are used
EARLIER_CHARS: Final = 2600  # of the list of complete loads in a position; brokers take 4,096 in all
KEY_CHARS: Final = 10  # of an input's digest, 60 bits
TIMES_CHARS: Final = 4
OPTIONS_CHARS: Final = 4
NAME_CHARS: Final = 5
MOST_NAMES: Final = 40
FILE_CHARS: Final = 6
MOST_FILES: Final = 3
ANY_NAME: Final = "*"  # too many names to keep
_FIRST_DAY: Final = date(2020, 1, 1)
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Identifies the inputs of a load.

    Attributes:
        digest: A digest of names without directories, sizes, and the bytes at both ends of each.
        times: Digest of when they were written, in seconds; empty: not known.
        names: Short digests of their names without directories, one behind the other; ANY_NAME: too many.
        keys: The key that each file of them would have by itself.
    """

    digest: str
    times: str
    names: str
    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Self:
        """Return the identity of some inputs. Raises OSError, LoadError: one cannot be read."""
        times = [source.mtime_ns // 1_000_000_000 for source in sources]
        names = sorted({_short(source.path.rpartition("/")[2], NAME_CHARS) for source in sources})
        digest, parts = digests_of_inputs(sources)
        return cls(
            digest,
            _short(json.dumps(times), TIMES_CHARS) if any(times) else "",
            "".join(names) if len(names) <= MOST_NAMES else ANY_NAME,
            tuple(key_of(part) for source, part in zip(sources, parts, strict=True) if source.pipe is None),
        )

    @property
    def key(self) -> str:
        """Return the digest as it is in lists of complete loads."""
        return key_of(self.digest)

    @property
    def files(self) -> str:
        """Return the beginnings of some keys, always the same of these inputs, one behind the other.

        They are empty for a single input, whose key says the same.
        """
        return "".join(key[:FILE_CHARS] for key in sorted(self.keys)[:MOST_FILES]) if len(self.keys) > 1 else ""

    def has_all_of(self, key: str, files: str) -> bool:
        """Return whether the inputs of another load, as far as they are known, are among these."""
        if not files:
            return key in self.keys
        return _parts(files, FILE_CHARS) <= {each[:FILE_CHARS] for each in self.keys}

    def shares_name(self, names: str) -> bool:
        """Return whether an input may have the name of one of others, of which `names` are known."""
        if ANY_NAME in (names, self.names) or not names:
            return True
        return not _parts(names, NAME_CHARS).isdisjoint(_parts(self.names, NAME_CHARS))


@dataclass(frozen=True, slots=True)
class LoadedInput:
    """Holds a complete load, in a few characters of a later position.

    Attributes:
        key: The key of its inputs; see Inputs.
        times: As those of Inputs, or empty.
        options: How the digest of its options begins.
        sent_count, bad_count: Its rows.
        day: When it was complete.
        files: As those of Inputs; empty also where they are not known.
    """

    key: str
    times: str
    options: str
    sent_count: int
    bad_count: int
    day: date
    files: str = ""

    @classmethod
    def of(cls, committed: CommittedPosition) -> Self:
        """Return a complete load."""
        day = datetime.fromisoformat(committed.done_at).date()
        key, options = key_of(committed.inputs), committed.options[:OPTIONS_CHARS]
        counts = committed.sent_count, committed.bad_count
        return cls(key, committed.times, options, *counts, day, committed.files)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what `to_text` wrote. Raises ValueError."""
        key, times, options, *rest = text.split(".")
        files = rest.pop() if len(rest) == 4 else ""
        sent_count, bad_count, days = (int(number, 36) for number in rest)
        return cls(key, times, options, sent_count, bad_count, _FIRST_DAY + timedelta(days=days), files)

    def as_position(self, later: CommittedPosition, inputs: Inputs) -> CommittedPosition:
        """Return the position of the load, by what a later one says of the topic."""
        return replace(
            later,
            inputs=inputs.digest,
            times=self.times,
            files=self.files,
            options=self.options,
            sent_count=self.sent_count,
            bad_count=self.bad_count,
            done_at=str(self.day),
            earlier="",
        )

    def to_text(self) -> str:
        """Return the text that is in the list of a position."""
        days = (self.day - _FIRST_DAY).days
        numbers = map(_in_base_36, (self.sent_count, self.bad_count, max(days, 0)))
        return ".".join((self.key, self.times, self.options, *numbers, *([self.files] if self.files else [])))


@dataclass(frozen=True, slots=True)
class Place:
    """Says where a load commits its position.

    Attributes:
        partition: The partition of the load's topic.
        others: The positions of other partitions, which each commit repeats.
        known: The position that is there before the first commit; None: there is none.
    """

    partition: int
    others: Mapping[int, CommittedPosition]
    known: CommittedPosition | None = None

    def offsets(self, topic: str, committed: CommittedPosition) -> dict[tuple[str, int], tuple[int, str]]:
        """Return what to commit with a position."""
        positions = {**self.others, self.partition: committed}
        return {(topic, number): (each.rank, each.to_text()) for number, each in positions.items()}


class Positions:
    """The committed positions of a transactional id in a topic.

    Args:
        transactional_id: The id.
        found: Positions by partition.
        topic_id: The topic's id now.
        place_count: How many partitions may have one.
        others: Other topics that the id has offsets of.
    """

    def __init__(
        self,
        transactional_id: str,
        found: Mapping[int, CommittedPosition],
        topic_id: str,
        place_count: int,
        others: Collection[str] = (),
    ) -> None:
        self._id = transactional_id
        self._others = others
        self._found = found
        self._topic_id = topic_id
        self._place_count = place_count

    def find(self, inputs: Inputs) -> CommittedPosition | None:
        """Return the position of a load of the same inputs; None: there is none, or it was begun again.

        Raises:
            LoadRefusedError: A load that stopped had an input of the same name, and another content or other inputs;
                or all inputs of a complete one are among these, as in a folder that got a file since.
        """
        for each in self._found.values():
            if each.inputs == inputs.digest:
                return each if each.is_begun else None
        changed = self._changed(inputs)
        if changed is not None:
            raise LoadRefusedError(
                f"the input is not what it was when a load with transactional id {self._id!r} began that stopped after "
                f"{counted(changed[1].sent_count, 'record')}. Use --restart to load it from the beginning"
            )
        for each in self._found.values():
            loaded = _earlier_of(each, self._id).get(inputs.key)
            if loaded is not None:
                return loaded.as_position(each, inputs)
        self._check_has_no_others(inputs)
        return None

    def check_alone(self, inputs: Inputs) -> None:
        """Refuse anything else than one load under the id, which is that of one write.

        Args:
            inputs: Those of the load.

        Raises:
            LoadRefusedError: The id has been used for another input or topic.
        """
        if self._others:
            raise LoadRefusedError(
                f"group {self._id!r} has the mark of a write into {', '.join(map(repr, sorted(self._others)))}: "
                "nothing was written. Give this load another write id"
            )
        begun = (each for each in self._found.values() if each.is_begun)
        other = next((each for each in begun if each.inputs != inputs.digest), None)
        if other is not None:
            rows = counted(other.sent_count, "record")
            raise LoadRefusedError(
                f"group {self._id!r} has the mark of a load of other input, with {rows}: nothing was written. Give "
                "this load another write id, or start over with --restart"
            )

    def _check_has_no_others(self, inputs: Inputs) -> None:
        """Raise LoadRefusedError where the rows of a complete load would come again, together with others."""
        for each in self._found.values():
            if each.topic_id != self._topic_id:
                continue
            loaded = [*_earlier_of(each, self._id).values(), *([LoadedInput.of(each)] if each.done_at else [])]
            for one in loaded:
                if inputs.has_all_of(one.key, one.files):
                    rows = counted(one.sent_count, "record")
                    raise LoadRefusedError(
                        f"some of {counted(len(inputs.keys), 'file')} are already loaded, with {rows} on {one.day} "
                        f"(transactional id {self._id!r}): name only the others. --restart sends the rows of all again"
                    )

    def any_of(self) -> CommittedPosition | None:
        """Return the position of a load that stopped; of a complete one if none did; None: there is none."""
        known = sorted(self._found.values(), key=lambda each: bool(each.done_at))
        return known[0] if known else None

    def place(self, inputs: Inputs, *, restarts: bool) -> tuple[Place, str]:
        """Return where a load of these inputs has its position, and the list of complete loads to keep there.

        Args:
            inputs: The inputs.
            restarts: A load of the same names may be forgotten.

        Raises:
            LoadRefusedError: There is no place left.
        """
        changed = self._changed(inputs) if restarts else None
        own = next((number for number, each in self._found.items() if each.inputs == inputs.digest), None)
        if own is None and changed is not None:
            own = changed[0]
        is_full = False
        for number in range(self._place_count) if own is None else (own,):
            known = self._found.get(number)
            if own is None and known is not None and self._is_stopped(known):
                continue
            earlier = "" if known is None or known.topic_id != self._topic_id else self._earlier(known, inputs)
            if len(earlier) <= EARLIER_CHARS:
                return self._place(number), earlier
            is_full = True
        stopped = sum(map(self._is_stopped, self._found.values()))
        if is_full:
            raise LoadRefusedError(
                f"transactional id {self._id!r} has loaded as many inputs as its committed positions have room for: "
                "use another id for this input and those after it, or load many files with one command"
            )
        raise LoadRefusedError(
            f"{counted(stopped, 'load')} of other inputs with transactional id {self._id!r} stopped, and the topic has "
            f"room for {self._place_count}: continue them first with --resume, or use another id"
        )

    def place_of(self, committed: CommittedPosition) -> Place:
        """Return where the position of a load that is continued is."""
        return self._place(next((number for number, each in self._found.items() if each is committed), 0))

    def _place(self, number: int) -> Place:
        others = {n: each for n, each in self._found.items() if n != number and each.topic_id == self._topic_id}
        return Place(number, others, self._found.get(number))

    def _is_stopped(self, known: CommittedPosition) -> bool:
        return known.is_begun and not known.done_at and known.topic_id == self._topic_id

    def _changed(self, inputs: Inputs) -> tuple[int, CommittedPosition] | None:
        """Return the load that stopped and had one of the inputs' names, but not the same inputs."""
        for number, each in self._found.items():
            if each.inputs != inputs.digest and self._is_stopped(each) and inputs.shares_name(each.names):
                return number, each
        return None

    def _earlier(self, known: CommittedPosition, inputs: Inputs) -> str:
        loaded = _earlier_of(known, self._id)
        if known.done_at:
            loaded[key_of(known.inputs)] = LoadedInput.of(known)
        loaded.pop(inputs.key, None)
        return " ".join(each.to_text() for each in loaded.values())


def find_positions(
    client: ClusterClient, transactional_id: str, topic: str, *, is_final: bool = False, ignores_others: bool = False
) -> Positions:
    """Return what loads with a transactional id have committed.

    Args:
        client: A client of the cluster.
        transactional_id: The id.
        topic: The topic of the loads.
        is_final: Earlier processes are fenced: wait for what they decided. Else an open transaction, which a killed
            process may have left behind, is not waited for.
        ignores_others: Offsets that no load committed are passed over.

    Raises:
        LoadError: The group has an offset that no load committed.
        KafkaError: As a broker answered.
    """
    described = client.metadata([topic]).topics[0]
    places = range(min(len(described.partitions), MAX_PLACES))
    offsets = read_offsets(client, transactional_id, SETTLED_MS if is_final else None)
    found = {}
    others = {name for name, _ in offsets if name != topic}
    for (name, number), each in sorted(offsets.items()):
        if name != topic or number not in places:
            continue
        try:
            found[number] = read_position(each.metadata, transactional_id)
            _earlier_of(found[number], transactional_id)
        except LoadError:
            if not ignores_others:
                raise
            found.pop(number, None)
    topic_id = "" if described.topic_id is None else str(described.topic_id)
    return Positions(transactional_id, found, topic_id, len(places), others)


def _earlier_of(committed: CommittedPosition, group: str) -> dict[str, LoadedInput]:
    """Return the complete loads that a position lists, by key. Raises LoadError: no load wrote the list."""
    try:
        loaded = [LoadedInput.from_text(text) for text in committed.earlier.split()]
    except (ValueError, OverflowError) as error:
        raise LoadError(
            f"the committed offset of group {group!r} is damaged: its list of complete loads: {error}. Start over with "
            "--restart"
        ) from error
    return {each.key: each for each in loaded}


def key_of(digest: str) -> str:
    """Return a digest of inputs as it is in lists of complete loads."""
    return _base64(bytes.fromhex(digest), KEY_CHARS)


def _short(text: str, length: int) -> str:
    return _base64(hashlib.sha256(text.encode(errors="surrogateescape")).digest(), length)


def _base64(data: bytes, length: int) -> str:
    return base64.urlsafe_b64encode(data).decode()[:length]


def _parts(text: str, length: int) -> set[str]:
    return {text[i : i + length] for i in range(0, len(text), length)}


def _in_base_36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits
