"""One scheduler, one random source, virtual time: what happens in a simulated cluster is decided here, by the seed.

Processes have names. A message goes over a link from one name to another and may be delayed, lost, repeated or cut off;
it is dropped when the receiving process has ended since it was sent, an answer when that which asked has ended, and
waits while the process is paused.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], None]

_ONCE, _TWICE = range(1), range(2)


@dataclass(slots=True)
class Process:
    """A running process. `lives` counts its starts, so that what was meant for an earlier one is not delivered.

    Its clock began somewhere, and goes a little faster or slower than others.
    """

    name: str
    is_up: bool = False
    lives: int = 0
    paused_until_ms: int = 0
    pump: Action | None = None
    clock_offset_ms: int = 0
    clock_permille: int = 1000


@dataclass(slots=True)
class NetworkRules:
    """What the network does to each message, drawn for each seed; a socket holds so many bytes that are under way."""

    min_delay_ms: int = 0
    max_delay_ms: int = 4
    loss: float = 0.0
    repeat: float = 0.0
    socket_bytes: int = 1 << 21


@dataclass(slots=True, eq=False)
class Link:
    """A wire that passes only so many bytes a second. Directions may share it: what is sent first passes first."""

    bytes_per_s: int
    free_at_ms: float = 0.0

    def passes_at_ms(self, now_ms: int, size: int) -> int:
        """Take bytes; return when the last of them has passed."""
        self.free_at_ms = max(self.free_at_ms, now_ms) + size * 1000 / self.bytes_per_s
        return math.ceil(self.free_at_ms)


class World:
    """See the module docstring.

    Attributes:
        now_ms: Virtual time.
        random: The only source of chance.
        cuts: Directions in which nothing passes, as (from, to).
        slow: Milliseconds that messages in a direction take longer.
        links: Wires of limited speed, by the directions of byte streams that go over them.
        history: What happened, for a failing seed.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.rules = NetworkRules()
        self.cuts: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], int] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.processes: dict[str, Process] = {}
        self.history: list[str] = []
        self.event_count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._events: list[tuple[int, int, Action, Process | None, int]] = []

    def process(self, name: str) -> Process:
        """Return the process of a name; it is made down."""
        return self.processes.setdefault(name, Process(name))

    def note(self, text: str) -> None:
        """Write to the history."""
        line = f"{self.now_ms:6} {text}"
        self.history.append(line)
        self._digest.update(line.encode())

    def trace(self, data: bytes) -> None:
        """Add bytes that were delivered to the digest."""
        self._digest.update(b"%d:%d:" % (self.now_ms, len(data)))
        self._digest.update(data)

    @property
    def digest(self) -> str:
        """A hash of the history, of every byte that real producers and brokers sent, and of the number of events."""
        digest = self._digest.copy()
        digest.update(b"%d %d" % (self.event_count, self.now_ms))
        return digest.hexdigest()

    def skew(self, process: Process) -> None:
        """Give a process that starts a clock of its own."""
        process.clock_offset_ms = self.random.randint(0, 100_000)
        process.clock_permille = self.random.randint(980, 1020)

    def clock_ms(self, process: Process) -> int:
        """Return the time by a process's clock."""
        return process.clock_offset_ms + self.now_ms * process.clock_permille // 1000

    def at(self, delay_ms: int, action: Action) -> None:
        """Run an action after a delay."""
        self.event_count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self.event_count, action, None, 0))

    def in_process(self, process: Process, delay_ms: int, action: Action) -> None:
        """Run an action in a process after a delay, unless the process has ended by then; then pump the process."""
        self.event_count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self.event_count, action, process, process.lives))

    def send(self, source: Process, target: Process, deliver: Action, life: int | None = None) -> None:
        """Send a message: `deliver` runs in the target process, never, once or twice.

        Args:
            source, target: From whom, to whom.
            deliver: What it does there.
            life: The one of the target's lives that may receive it, None: that of now. An answer is for the life that
                asked, whose connection ends with it.
        """
        rules, chance = self.rules, self.random.random
        if life is None:
            life = target.lives
        pair = (source.name, target.name)
        for _ in _TWICE if chance() < rules.repeat else _ONCE:
            if pair in self.cuts or chance() < rules.loss:
                continue
            spread_ms = int(chance() * (rules.max_delay_ms - rules.min_delay_ms + 1))
            delay_ms = rules.min_delay_ms + spread_ms + (self.slow.get(pair, 0) if self.slow else 0)
            self.event_count += 1
            heapq.heappush(self._events, (self.now_ms + delay_ms, self.event_count, deliver, target, life))

    def run_until(self, end_ms: int, check: Action, check_each_events: int) -> None:
        """Run all events up to a time, with a check after each so many."""
        events = self._events
        left = check_each_events
        while events and events[0][0] <= end_ms:
            self.now_ms, _, action, process, lives = heapq.heappop(events)
            if process is None:
                action()
            elif process.is_up and process.lives == lives:
                if process.paused_until_ms > self.now_ms:
                    self.in_process(process, process.paused_until_ms - self.now_ms, action)
                else:
                    action()
                    if process.pump is not None:
                        process.pump()
            left -= 1
            if not left:
                left = check_each_events
                check()
        self.now_ms = end_ms
