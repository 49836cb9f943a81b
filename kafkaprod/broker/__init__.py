"""An embedded broker with a durable log, for development and tests. Never imports the producer side.

One request's way: `server` (sockets, event loop) -> `session` (one connection) -> `dispatcher` (login, faults, lane)
-> `router` (API key -> handler) -> `handlers/<api>` -> `broker` (topics, groups, offsets, ids) -> `storage` (the log)
and back. Waiting fetches stay in `purgatory`, waiting joins and syncs in their `coordinator/group`.

    thread             owns
    event loop         sockets, sessions, purgatory, timers; runs the handlers of produce, fetch and other reads
    control thread     groups, offsets, producer ids, changes of topics; runs their handlers
    sync pool          syncs that must precede an acknowledgement (flush policy "each")
    maintenance        syncs by time, checkpoints, retention

`embedding` runs all of it in a process of its own, `cli.broker` as a command.

window          the page that shows a tester what is in a broker, by a process of its own
embedding       the broker inside another program
server          the broker's front: sockets, sessions, and the way of a request to its handler
handlers        one module per API key: what the broker does with a request
cluster         what the broker knows and decides: topics, leaders, producer ids, upkeep
settings        what clients have set: options, ACLs, quotas, credentials, tokens
config          the broker's options, under Kafka's names where Kafka has them
cluster_config  the options of a broker that belong to its cluster
coordinator     what the broker remembers for clients: groups, committed offsets, transactions
replication     what a broker does with the partitions that the metadata gives it
controller      one state machine that writes the cluster's metadata log
calls           what a handler is given and gives back
listeners       the sockets a broker listens on
metadata        the cluster's metadata: a log of Kafka's own records, and the image that they add up to
peers           connections between the processes of an embedded cluster
storage         the broker's durable log, in Apache Kafka's on-disk formats
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from kafkaprod.broker.embedding.cluster import EmbeddedCluster
    from kafkaprod.broker.embedding.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "EmbeddedCluster"]

_MODULES = {"EmbeddedBroker": "embedding.embedded", "EmbeddedCluster": "embedding.cluster"}


if not typing.TYPE_CHECKING:  # which would take any name for one of the package

    def __getattr__(name):
        # Loaded when first used: the broker's own process needs neither.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
