"""The options of a broker that belong to its cluster. Immutable."""

from __future__ import annotations

import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """See the module docstring.

    Attributes:
        directory: The directory of the cluster's sockets; mode 0700, and short: the path of a socket has at most 107
            bytes.
        cluster_id: The cluster's id, 22 characters of base64.
        incarnation_id: The id of this process.
        rack: Where the broker is.
        replication_factor: default.replication.factor, of internal topics too.
        min_insync_replicas: The lowest number of in-sync replicas of topics that do not set it.
        heartbeat_ms: broker.heartbeat.interval.ms.
        replica_lag_ms: replica.lag.time.max.ms.
        previous_epoch: The registration of the last process of this broker if that stopped cleanly, else -1.
    """

    directory: str
    cluster_id: str
    incarnation_id: uuid.UUID
    rack: str | None = None
    replication_factor: int = 1
    min_insync_replicas: int = 1
    heartbeat_ms: int = 500
    replica_lag_ms: int = 2_000
    previous_epoch: int = -1
