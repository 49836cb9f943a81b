"""Asks the brokers over their control sockets, and merges what they answer.

One thread asks one broker at a time; a broker that does not answer within two seconds counts as silent, is asked again
after a moment, and holds no other one up. What was true when it last answered stays. Thread-safe.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from kafkaprod.broker.embedding.lines import NUMBER, JsonLines
from kafkaprod.errors import KafkaError

_ANSWER_S: Final = 2.0
_RETRY_S: Final = 1.0
_RATE_S: Final = 3.0
_LARGE_ANSWER_S: Final = 10.0
_MOST_BROKERS_AT_ONCE: Final = 16


class AskError(KafkaError):
    """A broker could not do what the page wants, or no broker answers."""


class AskedBroker:
    """One broker.

    Attributes:
        name: Its id.
        state: "up", "down" or "silent".
        since_s: Since when, by the wall clock.
    """

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.state = "down"
        self.since_s = time.time()
        self._path = path
        self._lock = threading.Lock()
        self._lines: JsonLines | None = None  # guarded by _lock, as the next three
        self._sock: socket.socket | None = None
        self._retry_s = 0.0
        self._number = 0

    def ask(self, command: Mapping[str, Any], timeout_s: float = _ANSWER_S) -> dict[str, Any] | None:
        """Return a broker's answer, or None if it does not answer."""
        with self._lock:
            if time.monotonic() < self._retry_s:
                return None
            try:
                return self._exchange(command, timeout_s)
            except (OSError, ValueError) as error:
                self._close()
                self._retry_s = time.monotonic() + _RETRY_S
                self._note("silent" if isinstance(error, TimeoutError) else "down")
                return None

    def _exchange(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._lines is None:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._sock.settimeout(_ANSWER_S)
            self._sock.connect(self._path)
            self._sock.settimeout(None)
            self._lines = JsonLines(self._sock, self._sock)
        self._number += 1
        self._lines.send({**command, NUMBER: self._number})
        answer = self._lines.receive(timeout_s)
        if answer is None:
            raise ConnectionResetError("the broker closed the control socket")
        answer.pop(NUMBER, None)
        self._note("up")
        return answer

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = self._lines = None

    def _note(self, state: str) -> None:
        if state != self.state:
            self.state, self.since_s = state, time.time()


class TopicState(NamedTuple):
    """A topic as its leaders see it.

    Attributes:
        partitions: Number -> leader, log start, last stable offset, high watermark, log end, bytes.
    """

    is_internal: bool
    partitions: dict[int, tuple[str, int, int, int, int, int]]

    @property
    def records(self) -> int:
        """How many records readers can see, with markers and what compaction has removed."""
        return sum(stable - start for _, start, stable, *_ in self.partitions.values())

    @property
    def written(self) -> int:
        """The sum of the ends."""
        return sum(row[4] for row in self.partitions.values())

    @property
    def size_bytes(self) -> int:
        """The bytes of all logs."""
        return sum(row[5] for row in self.partitions.values())


class AskedBrokers:
    """All brokers, and what they answered last.

    Args:
        paths: Id of a broker -> its control socket.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._sources: list[AskedBroker] = []
        self.set_paths(paths)
        self._pool = ThreadPoolExecutor(_MOST_BROKERS_AT_ONCE, thread_name_prefix="kafkaprod-window-ask")
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Any]] = {}  # guarded by _lock
        self._making: dict[str, threading.Lock] = {}  # guarded by _lock
        self._history: deque[tuple[float, dict[str, int]]] = deque()

    def set_paths(self, paths: Mapping[str, str]) -> None:
        """Ask these brokers from now on; those that are asked already keep their connections."""
        known = {source.name: source for source in self._sources}
        self._sources = [known.get(name) or AskedBroker(name, path) for name, path in paths.items()]

    @property
    def brokers(self) -> list[dict[str, Any]]:
        """The state of each broker."""
        return [{"id": each.name, "state": each.state, "since": int(each.since_s * 1000)} for each in self._sources]

    def ask_all(self, command: Mapping[str, Any], timeout_s: float = _ANSWER_S) -> dict[str, dict[str, Any]]:
        """Ask all brokers side by side; return the answers of those that answered without an error, by id."""
        sources = self._sources
        if len(sources) == 1:
            answers = [sources[0].ask(command, timeout_s)]
        else:
            answers = list(self._pool.map(lambda source: source.ask(command, timeout_s), sources))
        return {
            source.name: answer
            for source, answer in zip(sources, answers, strict=True)
            if answer is not None and "error" not in answer
        }

    def ask_one(self, name: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one broker, by id.

        Raises:
            AskError: It does not answer, or it cannot do it.
        """
        for source in self._sources:
            if source.name == name:
                answer = source.ask(command, _LARGE_ANSWER_S)
                if answer is None:
                    raise AskError(f"broker {name} does not answer")
                if "error" in answer:
                    raise AskError(str(answer["error"]))
                return answer
        raise AskError(f"there is no broker {name!r}")

    def any_up(self) -> str:
        """Return the id of a broker that answered last time.

        Raises:
            AskError: No broker did.
        """
        for source in self._sources:
            if source.state == "up":
                return source.name
        raise AskError("no broker answers")

    def shared(self, key: str, age_s: float, make: Callable[[], Any]) -> Any:
        """Return what `make` returned at most `age_s` ago: pages that show the same cost the brokers as much as one."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
            if len(self._making) > 1_000:  # searches of long ago
                self._making.clear()
                self._kept.clear()
        with making:
            found = self._kept.get(key)
            if found is None or time.monotonic() - found[0] > age_s:
                found = (time.monotonic(), make())
                self._kept[key] = found
            return found[1]

    def topics(self) -> dict[str, TopicState]:
        """Return all topics, at most a second old."""
        found: dict[str, TopicState] = self.shared("topics", 0.9, self._read_topics)
        return found

    def _read_topics(self) -> dict[str, TopicState]:
        topics: dict[str, TopicState] = {}
        for name, answer in self.ask_all({"command": "overview"}).items():
            for topic, is_internal, rows in answer["topics"]:
                state = topics.setdefault(topic, TopicState(bool(is_internal), {}))
                for number, *offsets in rows:
                    state.partitions[number] = (name, *offsets)
        if not topics and "topics" in self._kept and not any(each.state == "up" for each in self._sources):
            kept: dict[str, TopicState] = self._kept["topics"][1]  # what was true when a broker answered last
            return kept
        now_s = time.monotonic()
        self._history.append((now_s, {name: topic.written for name, topic in topics.items()}))
        while len(self._history) > 2 and now_s - self._history[0][0] > _RATE_S:
            self._history.popleft()
        return topics

    def rates(self) -> dict[str, float]:
        """Return how many records a second were written to each topic in the last seconds."""
        if len(self._history) < 2:
            return {}
        (then_s, before), (now_s, after) = self._history[0], self._history[-1]
        span_s = max(now_s - then_s, 0.001)
        return {name: max(0, end - before.get(name, 0)) / span_s for name, end in after.items()}

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return all groups, at most a second old, with the lag of each committed offset behind it."""
        found: dict[str, dict[str, Any]] = self.shared("groups", 0.9, self._read_groups)
        return found

    def _read_groups(self) -> dict[str, dict[str, Any]]:
        topics = self.topics()
        found: dict[str, dict[str, Any]] = {}
        for name, answer in self.ask_all({"command": "groups"}).items():
            for group in answer["groups"]:
                group["coordinator"] = name
                for row in group["committed"]:
                    topic, partition, offset = row[:3]
                    place = topics[topic].partitions.get(partition) if topic in topics else None
                    row.append(None if place is None else max(0, place[2] - offset))
                found[group["id"]] = group
        return found

    def transactions(self) -> list[dict[str, Any]]:
        """Return all transactional ids, open ones first, at most a second old."""
        found: list[dict[str, Any]] = self.shared("transactions", 0.9, self._read_transactions)
        return found

    def _read_transactions(self) -> list[dict[str, Any]]:
        rows = []
        for name, answer in self.ask_all({"command": "transactions"}).items():
            for each in answer["transactions"]:
                is_open = each["state"] in ("Ongoing", "PrepareCommit", "PrepareAbort")
                age_ms = answer["now_ms"] - each["start_ms"] if is_open and each["start_ms"] >= 0 else None
                rows.append({**each, "coordinator": name, "age_ms": age_ms})
        return sorted(rows, key=lambda each: (each["age_ms"] is None, each["id"]))

    def newest(self, topic: str, count: int, partition: int | None, find: str = "", ends: Any = None) -> dict[str, Any]:
        """Return the newest records by partition, as `log_search` answers, merged."""
        state = self.topics().get(topic)
        if ends is None and partition is not None:
            ends = {str(partition): 2**63 - 1}
        parts = len(state.partitions) if state is not None and ends is None else 1
        command = {"command": "newest", "topic": topic, "count": max(5, min(count, 1_000 // max(parts, 1)))}
        command |= {"ends": ends, "find": find, "is_cut": True}
        merged: dict[str, Any] = {"partitions": {}, "searched": 0, "count": 0}
        for answer in self.ask_all(command, _LARGE_ANSWER_S).values():
            merged["partitions"].update(answer["partitions"])
            merged["searched"] += answer["searched"]
            merged["count"] = max(merged["count"], answer["count"])
        return merged

    def leader(self, topic: str, partition: int) -> str:
        """Return the id of the broker that leads a partition.

        Raises:
            AskError: There is no such partition, or it has no leader.
        """
        state = self.topics().get(topic)
        if state is None or partition not in state.partitions:
            raise AskError(f"{topic}-{partition} does not exist, or no broker leads it")
        return state.partitions[partition][0]
