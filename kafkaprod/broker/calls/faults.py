"""What a broker does wrong on purpose, as rules by API key.

`embedding.faults` describes each fault and checks its values.

Rules are tried in the order they were given; the first that fires wins.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kafkaprod.protocol.api_keys import ApiKey


class FaultKind(Enum):
    """What goes wrong; see `embedding.faults`."""

    REPLY_WITH = "reply_with"
    MOVE_LEADER = "move_leader"
    CLOSE = "close"
    DROP_REPLY = "drop_reply"
    CLOSE_AFTER_HANDLING = "close_after_handling"
    HALF_FRAME = "half_frame"
    DELAY = "delay"
    THROTTLE = "throttle"


class Fault(NamedTuple):
    """A fault and its number: an error code or ms, 0 where there is none."""

    kind: FaultKind
    value: int = 0


@dataclass(slots=True)
class _Rule:
    api: ApiKey
    fault: Fault
    left_count: int | None
    rate: float
    dice: random.Random = field(repr=False)

    def fires(self, api: ApiKey) -> bool:
        """Whether this rule hits now; counts it if so."""
        if api is not self.api or self.left_count == 0 or (self.rate < 1.0 and self.dice.random() >= self.rate):
            return False
        if self.left_count is not None:
            self.left_count -= 1
        return True


class Faults:
    """The rules of a broker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []  # guarded by _lock
        self._fired: dict[ApiKey, int] = {}  # guarded by _lock

    def on(
        self, api: ApiKey, fault: Fault, *, times: int | None = None, rate: float = 1.0, seed: int | None = None
    ) -> None:
        """Let requests of an API fail; `embedding.faults.check_rule` has checked the values."""
        with self._lock:
            self._rules.append(_Rule(api, fault, times, rate, random.Random(seed)))

    def clear(self) -> None:
        """Forget all rules."""
        with self._lock:
            self._rules.clear()

    def fired_count(self, api: ApiKey) -> int:
        """Return how many requests of an API have failed on purpose since the broker started."""
        with self._lock:
            return self._fired.get(api, 0)

    def take(self, api: ApiKey) -> Fault | None:
        """The fault for one request, None if it is handled as usual."""
        if not self._rules:
            return None
        with self._lock:
            for rule in self._rules:
                if rule.fires(api):
                    self._fired[api] = self._fired.get(api, 0) + 1
                    return rule.fault
            return None
