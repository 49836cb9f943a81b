"""Where the replicas of new partitions go: racks in turn, active brokers before fenced ones.

The next partition starts one rack further.

Source: Kafka, StripedReplicaPlacer. Pure: the random order of racks and brokers comes from the caller's generator.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from kafkaprod.broker.metadata.image import BrokerImage


def place(
    brokers: Sequence[BrokerImage], partition_count: int, replication_factor: int, generator: random.Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition; the first of them is active.

    Args:
        brokers: Candidates, at least `replication_factor` of them, one of them active.
        partition_count: How many partitions, at least 1.
        replication_factor: Replicas of each, at most as many as there are brokers.
        generator: Shuffles racks and the brokers in a rack.
    """
    racks: dict[str, list[BrokerImage]] = defaultdict(list)
    for broker in brokers:
        racks[broker.rack or ""].append(broker)
    names = sorted(racks)
    generator.shuffle(names)
    rows = []
    for name in names:
        row = sorted(racks[name], key=lambda broker: broker.broker_id)
        generator.shuffle(row)
        rows.append(row)
    return [_replicas(rows, index, replication_factor) for index in range(partition_count)]


def _replicas(rows: list[list[BrokerImage]], partition: int, count: int) -> tuple[int, ...]:
    """Take one broker of each rack in turn, starting at another rack and broker for each partition."""
    turned = [_turned(rows[(partition + shift) % len(rows)], partition // len(rows)) for shift in range(len(rows))]
    ordered = []
    depth = 0
    while any(depth < len(row) for row in turned):
        ordered += [row[depth] for row in turned if depth < len(row)]
        depth += 1
    leader = next(broker for broker in ordered if broker.is_active)
    others = [broker for broker in ordered if broker is not leader]
    return (leader.broker_id, *(broker.broker_id for broker in others[: count - 1]))


def _turned(row: list[BrokerImage], by: int) -> list[BrokerImage]:
    """Turn a rack's brokers by some places, active ones first."""
    by %= len(row)
    turned = row[by:] + row[:by]
    return sorted(turned, key=lambda broker: not broker.is_active)
