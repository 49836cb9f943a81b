"""What a broker does wrong on purpose, as rules by API key and by what a request is about.

`embedding.faults` describes each fault and checks its values.

Rules are tried in the order they were given. One for a part of the request takes the parts that no earlier one has, and
the next rules are tried for the others; one for the whole request ends the search. What a request does not carry
matches no selector. A request counts once for a rule, however many of its parts are hit.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from kafkaprod.protocol.api_keys import ApiKey

_MOST_FIRED: Final = 1_000
_PLACES: Final = frozenset({"topic", "partition"})
_A: Final = ApiKey
SELECTORS: Final[Mapping[ApiKey, frozenset[str]]] = {
    _A.PRODUCE: _PLACES | {"transactional_id"},
    _A.FETCH: _PLACES,
    _A.LIST_OFFSETS: _PLACES,
    _A.METADATA: _PLACES,
    _A.OFFSET_COMMIT: _PLACES | {"group"},
    _A.OFFSET_FETCH: _PLACES | {"group"},
    _A.OFFSET_FOR_LEADER_EPOCH: _PLACES,
    _A.DELETE_RECORDS: _PLACES,
    _A.CREATE_TOPICS: frozenset({"topic"}),
    _A.ADD_PARTITIONS_TO_TXN: _PLACES | {"transactional_id"},
    _A.TXN_OFFSET_COMMIT: _PLACES | {"group", "transactional_id"},
    _A.ADD_OFFSETS_TO_TXN: frozenset({"group", "transactional_id"}),
    _A.INIT_PRODUCER_ID: frozenset({"transactional_id"}),
    _A.END_TXN: frozenset({"transactional_id"}),
    _A.FIND_COORDINATOR: frozenset({"group", "transactional_id"}),
    **dict.fromkeys(
        (_A.JOIN_GROUP, _A.SYNC_GROUP, _A.HEARTBEAT, _A.LEAVE_GROUP, _A.CONSUMER_GROUP_HEARTBEAT, _A.OFFSET_DELETE),
        frozenset({"group"}),
    ),
}
"""What requests of an API can be selected by, besides client id and node, which all have."""

RequestPart = tuple[str, int | None]
"""A topic and a partition of a request; None: the topic as a whole."""


class FaultKind(Enum):
    """What goes wrong; see `embedding.faults`."""

    REPLY_WITH = "reply_with"
    REPLY_AFTER_HANDLING = "reply_after_handling"
    MOVE_LEADER = "move_leader"
    CLOSE = "close"
    DROP_REPLY = "drop_reply"
    CLOSE_AFTER_HANDLING = "close_after_handling"
    HALF_FRAME = "half_frame"
    DELAY = "delay"
    THROTTLE = "throttle"
    HOLD = "hold"


_OF_PARTS: Final = (FaultKind.REPLY_WITH, FaultKind.REPLY_AFTER_HANDLING, FaultKind.MOVE_LEADER)


class Fault(NamedTuple):
    """A fault and its number: an error code, ms, the rule of what is held; 0 where there is none."""

    kind: FaultKind
    value: int = 0


class Subject(NamedTuple):
    """What a request is about, as far as rules select by it.

    Attributes:
        parts: The topics and partitions that it names.
    """

    api: ApiKey
    client_id: str = ""
    node: int = 0
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    parts: Sequence[RequestPart] = ()


class Selection(NamedTuple):
    """Which requests of an API a rule is for; None: all. A text that ends in `*` stands for what begins so."""

    topic: tuple[str, ...] | None = None
    partition: tuple[int, ...] | None = None
    group: tuple[str, ...] | None = None
    transactional_id: tuple[str, ...] | None = None
    client_id: tuple[str, ...] | None = None
    node: tuple[int, ...] | None = None

    @property
    def has_places(self) -> bool:
        """Whether it selects topics or partitions."""
        return self.topic is not None or self.partition is not None

    def matches(self, subject: Subject) -> bool:
        """Whether all but topics and partitions are as selected."""
        return (
            (self.node is None or subject.node in self.node)
            and (self.client_id is None or _fits(self.client_id, subject.client_id))
            and (self.group is None or any(_fits(self.group, each) for each in subject.groups))
            and (
                self.transactional_id is None
                or any(_fits(self.transactional_id, each) for each in subject.transactional_ids)
            )
        )

    def picks(self, part: RequestPart) -> bool:
        """Whether a part of a request is as selected."""
        topic, partition = part
        return (self.topic is None or _fits(self.topic, topic)) and (
            self.partition is None or partition in self.partition
        )


EVERY: Final = Selection()
"""All requests of the API."""


def _fits(wanted: tuple[str, ...], text: str) -> bool:
    return any(text.startswith(each[:-1]) if each.endswith("*") else text == each for each in wanted)


class FaultVerdict(NamedTuple):
    """What happens to a request: a fault for the whole of it, and faults for parts of it."""

    fault: Fault | None = None
    parts: Mapping[RequestPart, Fault] = {}


_NOTHING: Final = FaultVerdict()


@dataclass(slots=True)
class _Rule:
    number: int
    api: ApiKey
    fault: Fault
    left_count: int | None
    rate: float
    dice: random.Random = field(repr=False)
    selection: Selection
    after: int
    note: str
    matched_count: int = 0
    fired_count: int = 0

    @property
    def is_for_parts(self) -> bool:
        """Whether the rest of a request works."""
        return self.selection.has_places and self.fault.kind in _OF_PARTS

    def fires(self) -> bool:
        """Whether this rule hits a request that matches; counts it."""
        self.matched_count += 1
        if self.matched_count <= self.after or self.left_count == 0:
            return False
        if self.rate < 1.0 and self.dice.random() >= self.rate:
            return False
        if self.left_count is not None:
            self.left_count -= 1
        self.fired_count += 1
        return True

    def describe(self) -> dict[str, Any]:
        """Return the rule as plain values."""
        selected = {name: value for name, value in self.selection._asdict().items() if value is not None}
        return {
            "number": self.number,
            "api": int(self.api),
            "kind": self.fault.kind.value,
            "value": self.fault.value,
            "selected": selected,
            "matched": self.matched_count,
            "fired": self.fired_count,
            "left": self.left_count,
            "note": self.note,
        }


class Faults:
    """The rules of a broker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []  # guarded by _lock, as all that follows
        self._fired: dict[ApiKey, int] = {}
        self._last_fired: deque[dict[str, Any]] = deque(maxlen=_MOST_FIRED)
        self._held: dict[int, list[Callable[[], None]]] = {}  # by the number of a rule that holds requests
        self._rule_number = 0
        self._fired_number = 0

    @property
    def are_there(self) -> bool:
        """Whether there is a rule: a request is looked at only then."""
        return bool(self._rules)

    def on(
        self,
        api: ApiKey,
        fault: Fault,
        *,
        times: int | None = None,
        rate: float = 1.0,
        seed: int | None = None,
        selection: Selection = EVERY,
        after: int = 0,
        note: str = "",
    ) -> int:
        """Let requests of an API fail, and return the rule's number; `embedding.faults` has checked the values."""
        with self._lock:
            self._rule_number += 1
            number = self._rule_number
            if fault.kind is FaultKind.HOLD:
                fault = Fault(FaultKind.HOLD, number)
                self._held[number] = []
            self._rules.append(_Rule(number, api, fault, times, rate, random.Random(seed), selection, after, note))
            return number

    def clear(self) -> None:
        """Forget all rules; what they hold is handled."""
        with self._lock:
            self._rules.clear()
            held = [each for calls in self._held.values() for each in calls]
            self._held.clear()
        for go_on in held:
            go_on()

    def remove(self, number: int) -> None:
        """Forget a rule, if it is there; what it holds is handled."""
        with self._lock:
            self._rules = [rule for rule in self._rules if rule.number != number]
            held = self._held.pop(number, [])
        for go_on in held:
            go_on()

    def hold(self, number: int, go_on: Callable[[], None]) -> None:
        """Have a call made when a rule that holds requests is removed: at once if it is no longer there."""
        with self._lock:
            held = self._held.get(number)
            if held is not None:
                held.append(go_on)
        if held is None:
            go_on()

    def describe(self) -> list[dict[str, Any]]:
        """Return all rules as plain values, in their order."""
        with self._lock:
            return [rule.describe() for rule in self._rules]

    def last_fired(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the last thousand that fired, oldest first, those with a number above `since`."""
        with self._lock:
            return [each for each in self._last_fired if each["number"] > since]

    def fired_count(self, api: ApiKey) -> int:
        """Return how many requests of an API have failed on purpose since the broker started."""
        with self._lock:
            return self._fired.get(api, 0)

    def take(self, subject: Subject) -> FaultVerdict:
        """Return what happens to one request."""
        hit: dict[RequestPart, Fault] = {}
        with self._lock:
            for rule in self._rules:
                if rule.api is not subject.api or not rule.selection.matches(subject):
                    continue
                picked = [part for part in subject.parts if part not in hit and rule.selection.picks(part)]
                if (rule.selection.has_places and not picked) or not rule.fires():
                    continue
                self._note(rule, subject, picked if rule.selection.has_places else [])
                if not rule.is_for_parts:
                    return FaultVerdict(rule.fault, hit)
                hit.update(dict.fromkeys(picked, rule.fault))
        return FaultVerdict(None, hit) if hit else _NOTHING

    def _note(self, rule: _Rule, subject: Subject, parts: Sequence[RequestPart]) -> None:
        self._fired[subject.api] = self._fired.get(subject.api, 0) + 1
        self._fired_number += 1
        self._last_fired.append(
            {
                "number": self._fired_number,
                "time": int(time.time() * 1000),
                "node": subject.node,
                "api": int(subject.api),
                "client_id": subject.client_id[:_MOST_CHARS],
                "parts": [[topic[:_MOST_CHARS], partition] for topic, partition in parts[:_MOST_PARTS]],
                "rule": rule.number,
            }
        )


_MOST_CHARS: Final = 249
_MOST_PARTS: Final = 16
