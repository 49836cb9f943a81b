"""What a page is sent while it is open: server-sent events, each of them what is true now.

A stream belongs to one screen. It remembers what it has sent, and sends rows that have changed; nothing is kept for a
page that reads slowly, since the next event says all that it missed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final

from kafkaprod.broker.window.showing import newest_first, shown_row, visible
from kafkaprod.broker.window.sources import AskedBrokers
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import describe

SHOWN_RECORDS: Final = 50
_MOST_ROWS: Final = 1_000
_MOST_OFFSETS: Final = 500
_MOST_READERS: Final = 8
_MOST_FIRED: Final = 100
_MOST_CHARS: Final = 300
_QUIET_S: Final = 15.0
_FAST_PARTITIONS: Final = 16
"""The records of a topic with as many are looked at twice a second, of others once."""

ShownScreen = dict[str, str]
"""What a page wants to see: `view`, and `topic`, `partition` or `group`."""


def event(name: str, data: Any) -> bytes:
    """Return an event as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class Stream:
    """What one page has been sent.

    Args:
        sources: Asks the brokers.
        wanted: What the page shows.
    """

    def __init__(self, sources: AskedBrokers, wanted: ShownScreen) -> None:
        self._sources = sources
        self._wanted = wanted
        self._sent: dict[str, dict[str, str]] = {}
        self._last: dict[str, str] = {}
        self._stable: dict[str, int] | None = None
        self._sent_s = time.monotonic()
        self._turn = 0

    def next_events(self) -> bytes:
        """Return what has changed since the last call, as events; a comment if there was nothing for long."""
        view = self._wanted.get("view", "topics")
        is_second = self._turn % 2 == 0
        self._turn += 1
        parts: list[bytes] = []
        if is_second:
            parts += self._if_changed("state", self._state())
        match view:
            case "topics" if is_second:
                parts += self._rows("topics", self._topic_rows())
            case "topic":
                parts += self._records(is_second)
            case "groups" | "group" if is_second:
                parts += self._groups(view)
            case "transactions" if is_second:
                parts += self._if_changed("transactions", self._transactions())
            case "requests":
                parts += self._if_changed("requests", self._sources.shared("requests", 0.4, self._requests))
            case "faults" if is_second:
                parts += self._if_changed("faults", self._sources.shared("faults", 0.9, self._faults))
            case _:
                pass
        found = b"".join(parts)
        now_s = time.monotonic()
        if not found and now_s - self._sent_s > _QUIET_S:
            found = b": still here\n\n"
        if found:
            self._sent_s = now_s
        return found

    def _if_changed(self, name: str, data: Any) -> Iterator[bytes]:
        text = json.dumps(data)
        if self._last.get(name) != text:
            self._last[name] = text
            yield event(name, data)

    def _rows(self, name: str, rows: dict[str, Any]) -> Iterator[bytes]:
        """Send the rows that have changed, a thousand at most, and the names of those that are gone."""
        sent = self._sent.setdefault(name, {})
        changed: list[Any] = []
        for key, row in rows.items():
            text = json.dumps(row)
            if sent.get(key) != text and len(changed) < _MOST_ROWS:
                sent[key] = text
                changed.append(row)
        gone = [key for key in sent if key not in rows]
        for key in gone:
            del sent[key]
        is_first = name not in self._last
        self._last[name] = ""
        if changed or gone or is_first:
            yield event(name, {"rows": changed, "gone": gone})

    def _state(self) -> dict[str, Any]:
        topics, rates = self._sources.topics(), self._sources.rates()
        open_count = sum(each["age_ms"] is not None for each in self._sources.transactions())
        return {
            "brokers": self._sources.brokers,
            "topics": sum(not topic.is_internal for topic in topics.values()),
            "groups": len(self._sources.groups()),
            "open": open_count,
            "faults": len(self._sources.shared("faults", 0.9, self._faults)["rules"]),
            "rate": round(sum(rate for name, rate in rates.items() if not topics[name].is_internal))
            if rates.keys() <= topics.keys()
            else 0,
        }

    def _topic_rows(self) -> dict[str, Any]:
        topics, rates = self._sources.topics(), self._sources.rates()
        readers: dict[str, dict[str, int]] = {}
        for group in self._sources.groups().values():
            for topic, *_, lag in group["committed"]:
                lags = readers.setdefault(topic, {})
                lags[group["id"]] = lags.get(group["id"], 0) + (lag or 0)
        return {
            name: {
                "name": name,
                "internal": topic.is_internal,
                "partitions": len(topic.partitions),
                "records": topic.records,
                "written": topic.written,
                "rate": round(rates.get(name, 0.0), 1),
                "size": topic.size_bytes,
                "readers": [
                    [visible(group), group, lag] for group, lag in list(readers.get(name, {}).items())[:_MOST_READERS]
                ],
                "more": max(0, len(readers.get(name, {})) - _MOST_READERS),
            }
            for name, topic in topics.items()
        }

    def _records(self, is_second: bool) -> Iterator[bytes]:
        name = self._wanted.get("topic", "")
        topics = self._sources.topics()
        state = topics.get(name)
        if state is None:
            yield from self._if_changed("topic", {"name": name, "missing": True})
            return
        if is_second:
            yield from self._if_changed("topic", self._topic(name))
        if not is_second and len(state.partitions) > _FAST_PARTITIONS:
            return
        text = self._wanted.get("partition", "")
        partition = int(text) if text.isdecimal() else None
        if self._stable is not None and len(state.partitions) > _FAST_PARTITIONS and partition is None:
            now = {str(number): row[2] for number, row in state.partitions.items()}
            ends = {number: end for number, end in now.items() if end != self._stable.get(number)}
            if not ends:
                return
        else:
            ends = None
        key = f"records {name} {partition} {sorted(ends or {})}"
        age_s = 0.4 if is_second or len(state.partitions) <= _FAST_PARTITIONS else 0.9
        found = self._sources.shared(
            key, age_s, lambda: self._sources.newest(name, SHOWN_RECORDS, partition, ends=ends)
        )
        yield from self._new_records(found["partitions"])

    def _new_records(self, pages: dict[str, Any]) -> Iterator[bytes]:
        """Send those records that the page has not been sent, the newest of them, and how many were passed over."""
        before, fresh, advance = self._stable, {}, 0
        self._stable = dict(before or {})
        for number, page in pages.items():
            known = None if before is None else before.get(number, page["start"])
            fresh[number] = {"records": [row for row in page["records"] if known is None or row[0] >= known]}
            advance += 0 if known is None else max(0, page["stable"] - max(known, page["start"]))
            self._stable[number] = page["stable"]
        shown = newest_first(fresh)[:SHOWN_RECORDS]
        if shown or before is None:
            passed = max(0, advance - len(shown)) if before is not None else 0
            data = {
                "rows": [shown_row(number, row) for number, row in shown],
                "passed": passed,
                "first": before is None,
            }
            yield event("records", data)

    def _topic(self, name: str) -> dict[str, Any]:
        state = self._sources.topics()[name]
        readers = []
        for group in self._sources.groups().values():
            lags = [row[-1] for row in group["committed"] if row[0] == name]
            if lags:
                readers.append([visible(group["id"]), group["id"], sum(lag or 0 for lag in lags)])
        held = [
            [visible(each["id"]), each["age_ms"] // 1000, [part for topic, part in each["partitions"] if topic == name]]
            for each in self._sources.transactions()
            if each["age_ms"] is not None and any(topic == name for topic, _ in each["partitions"])
        ]
        return {
            "name": name,
            "internal": state.is_internal,
            "partitions": [
                [number, *map(str, row)] for number, row in sorted(state.partitions.items())[:_MOST_OFFSETS]
            ],
            "count": len(state.partitions),
            "records": state.records,
            "size": state.size_bytes,
            "rate": round(self._sources.rates().get(name, 0.0), 1),
            "readers": readers[:_MOST_READERS],
            "held": held[:_MOST_READERS],
        }

    def _groups(self, view: str) -> Iterator[bytes]:
        groups = self._sources.groups()
        if view == "groups":
            yield from self._rows("groups", {key: _group_row(group) for key, group in groups.items()})
            return
        group = groups.get(self._wanted.get("group", ""))
        if group is None:
            yield from self._if_changed("group", {"id": self._wanted.get("group", ""), "missing": True})
            return
        members = [
            {
                "id": visible(member_id),
                "client": visible(client_id),
                "host": visible(host),
                "instance": None if instance is None else visible(instance),
                "partitions": partitions[:_MOST_OFFSETS],
            }
            for member_id, client_id, host, instance, partitions in group["members"]
        ]
        topics = self._sources.topics()
        offsets = [
            {
                "topic": visible(topic),
                "partition": partition,
                "offset": str(offset),
                "end": str(topics[topic].partitions[partition][2]) if lag is not None else None,
                "lag": lag,
                "at": at,
                "metadata": visible(metadata)[:200],
            }
            for topic, partition, offset, _, metadata, at, lag in group["committed"][:_MOST_OFFSETS]
            if lag is None or topic in topics
        ]
        detail = {**_group_row(group), "list": members, "offsets": offsets, "coordinator": group["coordinator"]}
        yield from self._if_changed("group", detail)

    def _faults(self) -> dict[str, Any]:
        """Return the rules of all brokers, and the newest faults that fired."""
        answers = self._sources.ask_all({"command": "rules"})
        rules = [
            {
                "node": node,
                "number": rule["number"],
                "api": _api_name(rule["api"]),
                "fault": _shown_fault(rule),
                "selected": visible(
                    ", ".join(f"{name} {value}" for name, values in rule["selected"].items() for value in values)
                ),
                "matched": rule["matched"],
                "fired": rule["fired"],
                "left": rule["left"],
                "note": visible(rule["note"]),
            }
            for node, answer in answers.items()
            for rule in answer["rules"]
        ]
        fired = [
            {**each, "api": _api_name(each["api"]), "client_id": visible(each["client_id"])}
            for answer in self._sources.ask_all({"command": "fired"}).values()
            for each in answer["fired"][-_MOST_FIRED:]
        ]
        fired.sort(key=lambda each: (each["time"], each["number"]), reverse=True)
        return {"rules": rules[:_MOST_ROWS], "fired": fired[:_MOST_FIRED]}

    def _requests(self) -> dict[str, Any]:
        """Return the newest requests, and how many there were by API and client."""
        rows = [
            {
                "node": node,
                "number": number,
                "time": at,
                "api": _api_name(api),
                "version": version,
                "client": visible(client_id),
                "host": host,
                "about": visible(_about(topics, groups, ids)),
                "records": records,
                "bytes": size,
            }
            for node, answer in self._sources.ask_all({"command": "requests", "limit": _MOST_FIRED}).items()
            for number, at, api, version, client_id, host, topics, groups, ids, records, size in answer["requests"]
        ]
        rows.sort(key=lambda each: (each["time"], each["number"]), reverse=True)
        counts: dict[tuple[str, str], int] = {}
        for answer in self._sources.ask_all({"command": "request_counts"}).values():
            for api, client, count in answer["counts"]:
                key = (_api_name(api), visible(client))
                counts[key] = counts.get(key, 0) + count
        most = sorted(counts.items(), key=lambda each: -each[1])[:_MOST_FIRED]
        return {"rows": rows[:_MOST_FIRED], "counts": [[*key, count] for key, count in most]}

    def _transactions(self) -> list[dict[str, Any]]:
        return [
            {
                "id": visible(each["id"]),
                "state": each["state"],
                "producer": f"{each['producer_id']} · {each['epoch']}",
                "age": None if each["age_ms"] is None else each["age_ms"] // 1000,
                "timeout": each["timeout_ms"] // 1000,
                "partitions": [f"{topic} {number}" for topic, number in each["partitions"][:20]],
                "more": max(0, len(each["partitions"]) - 20),
            }
            for each in self._sources.transactions()[:200]
        ]


def _about(topics: dict[str, list[int]], groups: list[str], ids: list[str]) -> str:
    parts = [f"{name} {', '.join(map(str, numbers))}".strip() for name, numbers in list(topics.items())[:_MOST_READERS]]
    return " · ".join([*parts, *groups, *ids])[:_MOST_CHARS]


def _shown_fault(rule: dict[str, Any]) -> str:
    if rule["kind"] in ("reply_with", "reply_after_handling"):
        is_applied = rule["kind"] == "reply_after_handling"
        return f"reply_with({describe(rule['value']).name}{', applied=True' if is_applied else ''})"
    if rule["kind"] == "hold":
        return "hold()"
    return f"{rule['kind']}({rule['value'] or ''})"


def _api_name(number: int) -> str:
    try:
        return ApiKey(number).name
    except ValueError:
        return str(number)


def _group_row(group: dict[str, Any]) -> dict[str, Any]:
    lags = [row[-1] for row in group["committed"] if row[-1] is not None]
    return {
        "id": group["id"],
        "shown": visible(group["id"]),
        "protocol": group["protocol"],
        "state": group["state"],
        "generation": group["generation"],
        "assignor": visible(group["assignor"]),
        "members": len(group["members"]),
        "topics": sorted({visible(row[0]) for row in group["committed"]})[:_MOST_READERS],
        "lag": sum(lags) if lags else None,
    }
