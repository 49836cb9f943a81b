"""The broker's side of `committed()`, `group()` and `transactions()`: what its coordinators know, without a client.

    {"command": "groups"}    {"groups": [{"id": "billing", "state": "Stable", "members": [...], "committed": [...]}]}
    {"command": "transactions"}     {"now_ms": ..., "transactions": [{"id": "pay-1", "state": "Ongoing", ...}]}

A member is its id, client id, host, instance id and partitions as [topic, partition]; a committed offset is
[topic, partition, offset, leader epoch, metadata, time in ms]. Only the coordinator has them; in a cluster the other
brokers answer with nothing. Offsets of open transactions are not committed yet. All is read on the control thread,
which owns it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.group import Group
from kafkaprod.broker.coordinator.subscription import CONSUMER_PROTOCOL_TYPE, read_assignment
from kafkaprod.broker.coordinator.transaction import TransactionState
from kafkaprod.broker.embedding.commands import Command, CommandHandler
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.errors import CorruptDataError

_TIMEOUT_S: Final = 30.0
_MOST_OFFSETS: Final = 10_000


def group_handlers(server: BrokerServer) -> dict[str, CommandHandler]:
    """Return what a test and a window read of groups and transactions, by the name of the command. Any thread."""
    broker = server.broker
    return {
        "groups": lambda command: _on_control(server, lambda: _groups(broker, command.get("group"))),
        "transactions": lambda _: _on_control(server, lambda: _transactions(broker)),
    }


def _on_control(server: BrokerServer, call: Callable[[], Command]) -> Command:
    outcome: Future[Command] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:
            outcome.set_exception(error)

    server.submit_control(run)
    return outcome.result(_TIMEOUT_S)


def _groups(broker: Broker, wanted: str | None) -> Command:
    groups = broker.groups.list_groups(broker.offsets.table.group_ids())
    left, rows = _MOST_OFFSETS, []
    for group in groups:
        if wanted not in (None, group.group_id):
            continue
        row = _consumer_group(broker, group) if isinstance(group, ConsumerGroup) else _classic_group(group)
        offsets = sorted(broker.offsets.table.of_group(group.group_id).items())
        limit = len(offsets) if wanted is not None else max(left, 0)
        row["committed"] = [[*place, *committed] for place, committed in offsets[:limit]]
        row["committed"] = [
            [topic, partition, offset, epoch, metadata, at]
            for topic, partition, offset, epoch, metadata, at in row["committed"]
        ]
        row["left_out"] = len(offsets) - len(row["committed"])
        left -= len(row["committed"])
        rows.append(row)
    return {"groups": rows}


def _classic_group(group: Group) -> dict[str, Any]:
    return {
        "id": group.group_id,
        "protocol": "classic",
        "state": group.state.value,
        "generation": group.generation_id,
        "assignor": group.protocol_name or "",
        "members": [
            [each.member_id, each.client_id, each.client_host, each.instance_id, _assigned(group, each.assignment)]
            for each in group.members.values()
        ],
    }


def _assigned(group: Group, assignment: bytes) -> list[list[Any]]:
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or not assignment:
        return []
    try:
        partitions = read_assignment(assignment).partitions
    except CorruptDataError:  # the members' own business
        return []
    return [[topic, number] for topic, numbers in partitions.items() for number in numbers]


def _consumer_group(broker: Broker, group: ConsumerGroup) -> dict[str, Any]:
    return {
        "id": group.group_id,
        "protocol": "consumer",
        "state": group.state_name,
        "generation": group.epoch,
        "assignor": group.assignor,
        "members": [
            [
                member.member_id,
                member.client_id,
                member.client_host,
                member.instance_id,
                sorted(
                    [topic.name, place.partition]
                    for place in member.assigned
                    if (topic := broker.topics.by_id(place.topic_id)) is not None
                ),
            ]
            for member in group.members.values()
        ],
    }


def _transactions(broker: Broker) -> Command:
    rows = [
        {
            "id": each.transactional_id,
            "state": each.state.title,
            "producer_id": each.producer_id,
            "epoch": each.epoch,
            "timeout_ms": each.timeout_ms,
            "start_ms": each.start_ms,
            "partitions": sorted([topic, partition] for topic, partition in each.partitions),
        }
        for each in broker.transactions.states.values()
        if each.state is not TransactionState.DEAD
    ]
    return {"now_ms": broker.clock.wall_ms(), "transactions": rows}
