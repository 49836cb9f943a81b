"""What a test sees of a broker or a cluster without a client, and what it does to it: requests, groups, records.

`EmbeddedBroker` and `EmbeddedCluster` have these methods. Nothing of it is seen by clients, or counted as theirs.
"""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.arrivals import Arrivals, ArrivedRecord
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.structs import INT32_MAX, TopicPartition, partition_of_key

_LOOK_S: Final = 0.01
_SHOWN_REQUESTS: Final = 10

RequestMark = Mapping[int, int]
"""A moment among the requests: the number of the newest one of each broker, by its id."""


class RequestsLostError(EmbeddedBrokerError):
    """More requests came since a mark than are kept: 10,000 of each broker. Counts of all time stay right."""


class SeenRequest(NamedTuple):
    """A request that a client has sent.

    Attributes:
        node: The id of the broker that got it.
        number: Its number there, from 1.
        time: When it came, in ms since the epoch.
        api: Its API.
        version: The version of that.
        client_id: The client's name.
        host: The client's address.
        topics: The partitions that it names, by topic; at most 64 of 16 topics.
        groups: The groups that it names.
        transactional_ids: The transactional ids that it names.
        records: How many records a produce request has.
        bytes: Its size, without the header.
    """

    node: int
    number: int
    time: int
    api: ApiKey
    version: int
    client_id: str
    host: str
    topics: dict[str, list[int]]
    groups: list[str]
    transactional_ids: list[str]
    records: int
    bytes: int


class SeenOffset(NamedTuple):
    """What a group has committed for a partition; `timestamp` is when, in ms since the epoch."""

    offset: int
    metadata: str
    leader_epoch: int
    timestamp: int


class SeenMember(NamedTuple):
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: list[TopicPartition]


class SeenGroup(NamedTuple):
    """A group, as its coordinator has it; `protocol` is "classic" or "consumer"."""

    group_id: str
    protocol: str
    state: str
    generation: int
    assignor: str
    members: list[SeenMember]
    coordinator: int


class SeenTransaction(NamedTuple):
    """A transactional id, as its coordinator has it; `age_ms` is None while no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    age_ms: int | None
    partitions: list[TopicPartition]


class BrokerInspection(ABC):
    """See the module docstring."""

    _arrivals: Arrivals

    def note_topics(self) -> None:
        """Let `last_records` show from now on only topics that are written to; the fixtures do so before each test."""
        self._arrivals.note_topics()

    def last_records(self) -> str:
        """Return the last records of each topic as text, for the report of a failed test."""
        return self._arrivals.describe()

    @abstractmethod
    def _ask_each(self, command: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        """Send a command to each broker that runs; return the answers by id."""

    # -- requests ------------------------------------------------------------------------------------------------------

    def mark(self) -> RequestMark:
        """Return this moment, for `since` of the next three: a test takes it before what it looks at."""
        return {node: answer["newest"] for node, answer in self._ask_requests({"limit": 0}).items()}

    def requests(
        self,
        api: ApiKey | str | None = None,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        since: RequestMark | None = None,
        limit: int = 1_000,
    ) -> list[SeenRequest]:
        """Return what clients have asked, oldest first: the newest that fit all that is given.

        Args:
            api: Only requests of this API.
            client_id: Only those of this client.
            topic: Only those that name this topic.
            group: Only those that name this group.
            since: Only those behind this moment, see `mark`.
            limit: At most so many of each broker.

        Raises:
            RequestsLostError: Some since that moment are not kept any more.
            EmbeddedBrokerError: Requests are not recorded here.
        """
        wanted = {
            "api": None if api is None else int(arguments.api_key("api", api)),
            "client_id": client_id,
            "topic": topic,
            "group": group,
            "limit": arguments.whole("limit", limit, 1),
        }
        found: list[SeenRequest] = []
        for node, answer in self._ask_requests(wanted, since).items():
            if answer["is_cut"] and since is not None:
                raise RequestsLostError(f"broker {node} got more requests since the mark than it keeps: 10,000")
            found += [_seen_request(node, each) for each in answer["requests"]]
        return sorted(found, key=lambda each: (each.time, each.number))

    def request_count(
        self, api: ApiKey | str | None = None, *, client_id: str | None = None, since: RequestMark | None = None
    ) -> int:
        """Return how many requests came: since the brokers started, or since a moment.

        Raises:
            RequestsLostError: Some since that moment are not kept any more.
            EmbeddedBrokerError: Requests are not recorded here.
        """
        if since is not None:
            return len(self.requests(api, client_id=client_id, since=since, limit=INT32_MAX))
        wanted = None if api is None else int(arguments.api_key("api", api))
        answers = self._ask_each({"command": "request_counts"})
        return sum(
            count
            for answer in answers.values()
            for each, client, count in answer["counts"]
            if wanted in (None, each) and client_id in (None, client)
        )

    def wait_for_requests(
        self,
        api: ApiKey | str,
        count: int = 1,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        since: RequestMark | None = None,
        timeout: float = 5.0,
    ) -> list[SeenRequest]:
        """Wait until so many requests came, and return them.

        Raises:
            AssertionError: There are fewer after `timeout` seconds; the text shows the last requests of all kinds.
            RequestsLostError, EmbeddedBrokerError: As `requests`.
        """
        arguments.whole("count", count, 1)
        found: list[SeenRequest] = []

        def is_enough() -> bool:
            found[:] = self.requests(api, client_id=client_id, topic=topic, group=group, since=since)
            return len(found) >= count

        if not _wait(is_enough, timeout):
            name = arguments.api_key("api", api).name
            last = "\n".join(
                f"  {each.api.name} of {each.client_id!r} for {each.topics or each.groups or 'no topic'}"
                for each in self.requests(since=since)[-_SHOWN_REQUESTS:]
            )
            raise AssertionError(
                f"{len(found)} of {count} requests {name} came within {timeout} s; the last ones:\n{last or '  none'}"
            )
        return found

    def _ask_requests(
        self, wanted: Mapping[str, Any], since: RequestMark | None = None
    ) -> dict[int, Mapping[str, Any]]:
        if since is None:
            return self._ask_each({"command": "requests", **wanted})
        numbers = {str(node): number for node, number in since.items()}
        return self._ask_each({"command": "requests", **wanted, "since_of": numbers})

    # -- groups and transactions ---------------------------------------------------------------------------------------

    def committed(self, group: str, topic: str | None = None) -> dict[TopicPartition, SeenOffset]:
        """Return what a group has committed, of one topic or of all; nothing for an unknown group.

        Offsets of an open transaction are not committed yet.
        """
        row = self._group_row(group)
        return {
            TopicPartition(name, partition): SeenOffset(offset, metadata, epoch, at)
            for name, partition, offset, epoch, metadata, at in (() if row is None else row["committed"])
            if topic in (None, name)
        }

    def lag(self, group: str) -> dict[TopicPartition, int | None]:
        """Return how many records a group has not read of each partition for which it has committed.

        They are counted to the last stable offset, as consumers with `isolation.level=read_committed` see them; markers
        of transactions count. None: the partition is gone, or no broker leads it.
        """
        ends = {
            TopicPartition(name, row[0]): row[2]
            for answer in self._ask_each({"command": "overview"}).values()
            for name, _, rows in answer["topics"]
            for row in rows
        }
        return {
            place: max(0, ends[place] - committed.offset) if place in ends else None
            for place, committed in self.committed(group).items()
        }

    def group(self, group: str) -> SeenGroup | None:
        """Return a group with its members; None for an unknown one."""
        row = self._group_row(group)
        if row is None:
            return None
        members = [
            SeenMember(
                member_id, client_id, host, instance, [TopicPartition(topic, number) for topic, number in places]
            )
            for member_id, client_id, host, instance, places in row["members"]
        ]
        return SeenGroup(
            row["id"], row["protocol"], row["state"], row["generation"], row["assignor"], members, row["coordinator"]
        )

    def wait_for_group(self, group: str, members: int = 1, *, timeout: float = 30.0) -> SeenGroup:
        """Wait until a group is stable and has so many members.

        Raises:
            AssertionError: It is not so after `timeout` seconds.
        """
        arguments.whole("members", members, 0)
        found: list[SeenGroup | None] = [None]

        def is_there() -> bool:
            found[0] = self.group(group)
            state = "Stable" if members else "Empty"
            return found[0] is not None and found[0].state == state and len(found[0].members) == members

        if not _wait(is_there, timeout) or found[0] is None:
            raise AssertionError(f"group {group!r} has not {members} members in peace within {timeout} s: {found[0]}")
        return found[0]

    def _group_row(self, group: str) -> dict[str, Any] | None:
        arguments.text("group", group)
        for node, answer in self._ask_each({"command": "groups", "group": group}).items():
            for row in answer["groups"]:
                return {**row, "coordinator": node}
        return None

    def transactions(self) -> list[SeenTransaction]:
        """Return all transactional ids that the coordinators know."""
        return [
            SeenTransaction(
                each["id"],
                each["state"],
                each["producer_id"],
                each["epoch"],
                each["timeout_ms"],
                answer["now_ms"] - each["start_ms"] if each["state"] in ("Ongoing", *_PREPARED) else None,
                [TopicPartition(topic, number) for topic, number in each["partitions"]],
            )
            for answer in self._ask_each({"command": "transactions"}).values()
            for each in answer["transactions"]
        ]

    def transaction(self, transactional_id: str) -> SeenTransaction | None:
        """Return the state of a transactional id; None for an unknown one."""
        arguments.text("transactional_id", transactional_id)
        return next((each for each in self.transactions() if each.transactional_id == transactional_id), None)

    # -- the way in ----------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> ArrivedRecord:
        """Write a record without a producer: for the test of a consumer. No login, right, quota or fault counts.

        Args:
            topic: A topic that exists.
            value: Text stands for its UTF-8 bytes; None is a tombstone.
            key: As `value`.
            headers: Pairs of a name, and bytes or None.
            partition: Where to; None: by the key as Kafka's producers do, and without one the first.
            timestamp: In ms since the epoch; None for now.

        Returns:
            The record, with its offset.

        Raises:
            EmbeddedBrokerError: The topic or partition does not exist, has no leader, or refuses the record.
        """
        arguments.text("topic", topic)
        leaders = {
            row[0]: node
            for node, answer in self._ask_each({"command": "overview"}).items()
            for name, _, rows in answer["topics"]
            if name == topic
            for row in rows
        }
        key_bytes, value_bytes = _encoded(key), _encoded(value)
        if partition is None:
            partition = 0 if key_bytes is None or not leaders else partition_of_key(key_bytes, max(leaders) + 1)
        if partition not in leaders:
            raise EmbeddedBrokerError(f"{topic}-{partition} does not exist, or no broker leads it")
        pairs = [(name, content) for name, content in headers]
        time_ms = int(time.time() * 1000) if timestamp is None else timestamp
        command = {
            "command": "send",
            "topic": topic,
            "partition": partition,
            "key": _base64(key_bytes),
            "value": _base64(value_bytes),
            "headers": [[name, _base64(content)] for name, content in pairs],
            "time": time_ms,
        }
        offset = self._ask_broker(leaders[partition], command)["offset"]
        return ArrivedRecord(partition, offset, key_bytes, value_bytes, pairs, time_ms)

    @abstractmethod
    def _ask_broker(self, node: int, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a command to one broker; return its answer."""

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete records below an offset of each partition, -1 for all; return where they begin now (DeleteRecords).

        Raises:
            EmbeddedBrokerError: A partition does not exist, or has fewer records.
        """
        if not isinstance(offsets, Mapping) or not offsets:
            raise ConfigError(f"offsets={offsets!r} is not a mapping of partitions to offsets: write {{0: 7}}")
        wanted = {str(partition): offset for partition, offset in offsets.items()}
        return self._starts({"command": "delete_records", "topic": topic, "offsets": wanted})

    def apply_retention(self, topic: str, *, now_ms: int | None = None) -> dict[int, int]:
        """Delete what is too old or too much, now; return where each partition begins.

        Whole segments go, when all of their records may. `delete_records` removes a part.

        Args:
            topic: Its `retention.ms` and `retention.bytes` count.
            now_ms: The time that ages are compared with, in ms since the epoch: tomorrow, say. None for the clock's.
        """
        return self._starts({"command": "retain", "topic": arguments.text("topic", topic), "now_ms": now_ms})

    def compact(self, topic: str) -> dict[int, int]:
        """Compact a topic with `cleanup.policy=compact`, now; return where each partition begins.

        Raises:
            EmbeddedBrokerError: It is not compacted.
        """
        return self._starts({"command": "compact", "topic": arguments.text("topic", topic)})

    def _starts(self, command: Mapping[str, Any]) -> dict[int, int]:
        answers = self._ask_each(command).values()
        return {int(number): start for answer in answers for number, start in answer["starts"].items()}


_PREPARED: Final = ("PrepareCommit", "PrepareAbort")


def _seen_request(node: int, row: Sequence[Any]) -> SeenRequest:
    number, at, api, version, client_id, host, topics, groups, ids, records, size = row
    return SeenRequest(node, number, at, ApiKey(api), version, client_id, host, topics, groups, ids, records, size)


def _wait(is_true: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not is_true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _encoded(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
