"""The writes that a cluster knows, for commands: list them, and forget one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import GROUP, find_coordinator
from kafkaprod.admin.topics import first
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.marks.looks import read_offsets
from kafkaprod.marks.mark import Mark
from kafkaprod.marks.place import DEFAULT_PREFIX, mark_name
from kafkaprod.marks.writers import MakeWriter
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_MANY_GROUPS_VERSION: Final = 8  # of OffsetFetch: the first one with many groups (KIP-709, Kafka 3.0)
_GROUPS_OF_REQUEST: Final = 500


def list_marks(client: ClusterClient, beginning: str = "") -> list[Mark]:
    """Return the marks of committed writes, by id; one request for 500 of them.

    Args:
        client: A client of the cluster.
        beginning: What the ids begin with.

    Raises:
        BrokerError: As the brokers answered.
    """
    marks: dict[str, Mark] = {}
    for broker in client.metadata([]).brokers:
        answer = client.ask(ListGroupsRequest(), broker.node_id)
        if answer.error_code:
            raise error_for(answer.error_code, f"groups of node {broker.node_id}")
        names = [group.group_id for group in answer.groups if group.group_id.startswith(DEFAULT_PREFIX)]
        for start in range(0, len(names), _GROUPS_OF_REQUEST):
            for mark in _marks_of(client, broker.node_id, names[start : start + _GROUPS_OF_REQUEST]):
                if mark.write_id.startswith(beginning):
                    marks[mark.write_id] = mark
    return [marks[write_id] for write_id in sorted(marks)]


def _marks_of(client: ClusterClient, node_id: int, names: Sequence[str]) -> Iterator[Mark]:
    wanted = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    answer = client.ask(OffsetFetchRequest(groups=wanted), node_id, _MANY_GROUPS_VERSION)
    for group in answer.groups:
        for topic in group.topics:
            for partition in topic.partitions:
                if partition.committed_offset >= 0 and not partition.error_code:
                    with contextlib.suppress(ConfigError):  # something else uses the group: it is no write
                        yield _read(partition.metadata or "", group.group_id, topic.name)


def find_mark(client: ClusterClient, write_id: str, patience_ms: int) -> Mark | None:
    """Return the mark of a write, or of a load; None: the cluster keeps none.

    Raises:
        ConfigError: Something else uses the group.
        BrokerError: As `read_offsets`.
    """
    name = mark_name(DEFAULT_PREFIX, write_id)
    for place, committed in read_offsets(client, name, patience_ms).items():
        return _read(committed.metadata, name, place.topic)
    return None


def _read(text: str, name: str, topic: str) -> Mark:
    """Read a mark, or the position of a load, which has other fields. Raises ConfigError: it is neither."""
    try:
        load = json.loads(text) if text.startswith('{"kafkaprod-load":') else None
        if load is None:
            return Mark.from_text(text, name)
        done_ms = datetime.fromisoformat(load["done_at"]).timestamp() * 1000 if load["done_at"] else 0
        return Mark(
            write_id=unquote(name.removeprefix(DEFAULT_PREFIX)),
            rows=int(load["sent_count"]),
            digest="",
            topics={topic: str(load.get("topic_id", ""))},
            cluster=str(load.get("cluster_id", "")),
            written_by="kafkaprod load",
            written_ms=int(done_ms),
            attempt="",
            is_done=bool(done_ms),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"group {name!r} has an offset whose metadata {text[:200]!r} is no position of a load") from (
            error
        )


def forget(client: ClusterClient, config: ProducerConfig, make_writer: MakeWriter, write_id: str) -> None:
    """Delete the mark of a write, so that it can be written again.

    Its transactional id is fenced first: a try that is at work cannot commit behind the deletion.

    Args:
        client: A client of the cluster.
        config: Options of a producer.
        make_writer: Makes a producer, as for a write.
        write_id: Its id.

    Raises:
        BrokerError: GROUP_ID_NOT_FOUND: there is no such mark; or as the brokers answered.
    """
    name = mark_name(DEFAULT_PREFIX, write_id)
    writer = make_writer(ProducerConfig.from_options(config, transactional_id=name)).producer
    try:
        writer.init_transactions()
    finally:
        writer.close(0)
    coordinator = find_coordinator(client, name, GROUP)
    deleted = first(client.ask(DeleteGroupsRequest(groups_names=[name]), coordinator).results, "group")
    if deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise error_for(deleted.error_code, f"write {write_id!r}, which has no mark")
    if deleted.error_code:
        raise error_for(deleted.error_code, f"mark of write {write_id!r}")
