"""What clients have asked a broker, for tests: the newest requests in a ring, and how many of each kind there were.

Only while it is wanted: without it a request costs one look at None. An entry is a tuple of what the request has
anyway; names and numbers are copied, bodies are not kept. The event loop writes, any thread reads.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafkaprod.protocol.api_keys import ApiKey

_MOST_REQUESTS: Final = 10_000
_MOST_CLIENTS: Final = 1_000
_MOST_TOPICS: Final = 16
_MOST_PARTITIONS: Final = 64
_MOST_CHARS: Final = 249
OTHER_CLIENTS: Final = "other clients"
"""Under this name the requests of further clients count, when there are many."""


class LoggedRequest(NamedTuple):
    """A request, as far as a test asks about it; see `embedding.inspection.SeenRequest`."""

    number: int
    time: int
    api: int
    version: int
    client_id: str
    host: str
    topics: dict[str, list[int]]
    groups: list[str]
    transactional_ids: list[str]
    records: int
    bytes: int


class RequestLog:
    """See the module docstring.

    Attributes:
        number: The number of the newest request; they count from 1.
    """

    def __init__(self) -> None:
        self.number = 0
        self._ring: deque[LoggedRequest] = deque(maxlen=_MOST_REQUESTS)
        self._counts: Counter[tuple[int, str]] = Counter()
        self._clients: set[str] = set()

    def note(
        self,
        now_ms: int,
        api: ApiKey,
        version: int,
        client_id: str,
        host: str,
        body_bytes: int,
        parts: Sequence[tuple[str, int | None]],
        groups: Sequence[str],
        transactional_ids: Sequence[str],
        records: int,
    ) -> None:
        """Add a request; on the event loop."""
        topics: dict[str, list[int]] = {}
        for topic, partition in parts:
            numbers = topics.get(topic)
            if numbers is None:
                if len(topics) == _MOST_TOPICS:
                    break
                numbers = topics[topic] = []
            if partition is not None and len(numbers) < _MOST_PARTITIONS:
                numbers.append(partition)
        client = client_id[:_MOST_CHARS]
        self.number += 1
        self._ring.append(
            LoggedRequest(
                self.number,
                now_ms,
                int(api),
                version,
                client,
                host,
                topics,
                [each[:_MOST_CHARS] for each in groups[:_MOST_TOPICS]],
                [each[:_MOST_CHARS] for each in transactional_ids[:_MOST_TOPICS]],
                records,
                body_bytes,
            )
        )
        if client not in self._clients:
            if len(self._clients) < _MOST_CLIENTS:
                self._clients.add(client)
            else:
                client = OTHER_CLIENTS
        self._counts[int(api), client] += 1

    def since(self, number: int) -> tuple[list[LoggedRequest], bool]:
        """Return the requests behind a number, oldest first, and whether some of them are not kept any more."""
        kept = self._ring.copy()
        first = kept[0].number if kept else self.number + 1
        return [each for each in kept if each.number > number], number + 1 < first

    def counts(self) -> list[tuple[int, str, int]]:
        """Return API, client id, and how many requests there were since the broker started."""
        return [(api, client, count) for (api, client), count in self._counts.copy().items()]

    def describe(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Return the requests that a command wants: behind `since`, the newest `limit` of those that fit."""
        found, is_cut = self.since(int(wanted.get("since", 0)))
        fitting = [list(each) for each in found if _fits(each, wanted)]
        return {"requests": fitting[-int(wanted.get("limit", 1_000)) :], "is_cut": is_cut, "newest": self.number}


def _fits(request: LoggedRequest, wanted: dict[str, Any]) -> bool:
    return (
        wanted.get("api") in (None, request.api)
        and wanted.get("client_id") in (None, request.client_id)
        and (wanted.get("topic") is None or wanted["topic"] in request.topics)
        and (wanted.get("group") is None or wanted["group"] in request.groups)
    )
