"""What the brokers can do for transactions: all of v2, and refuse records that come after their transaction."""

from __future__ import annotations

from typing import Final

from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.negotiation import BrokerVersions

FEATURE: Final = "transaction.version"
LEVEL_OF_V2: Final = 2
V2_NEEDS: Final = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5, ApiKey.INIT_PRODUCER_ID: 3}
_VERIFYING: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, (0, 4))  # what leaders use to check that a transaction is open


class BrokerAbilities:
    """What `look` has found at last. Sender thread only.

    Attributes:
        has_v2: Whether the cluster has finalized v2, and every broker known to us can play its part.
        refuses_late: Whether every broker known to us refuses records that come after their transaction.
    """

    def __init__(self, pool: NodePool) -> None:
        self.has_v2 = self.refuses_late = False
        self._pool = pool
        self._features = (-1, 0)  # (epoch, level of transactions) as last finalized by the cluster
        self._announced: dict[int, BrokerVersions] = {}  # by node: the versions that were last noted
        self._able: dict[int, bool] = {}  # by node: can it play its part in v2
        self._refuse_late: dict[int, bool] = {}  # by node: does it refuse records after their transaction
        self._ready_count = self._node_count = -1  # of the pool, when it was last looked at

    @property
    def are_others_ready(self) -> bool:
        """Whether more or fewer brokers are ready than at the last look."""
        return self._pool.ready_count != self._ready_count

    @property
    def are_others_known(self) -> bool:
        """Whether more or fewer brokers are known than at the last look."""
        return len(self._pool.members.states) != self._node_count

    def look(self) -> None:
        """Look at the brokers again."""
        pool = self._pool
        self._ready_count, self._node_count = pool.ready_count, len(pool.members.states)
        is_able = refuses_late = True
        for node_id in pool.node_ids():
            versions = pool.versions(node_id)
            if versions is not None:
                if versions is not self._announced.get(node_id):
                    self._note_versions(node_id, versions)
                is_able = is_able and self._able[node_id]
            # A broker that is not connected now, because it did not answer, is the one that may have the late records.
            refuses_late = refuses_late and self._refuse_late.get(node_id, True)
        self.has_v2 = is_able and self._features[1] >= LEVEL_OF_V2
        self.refuses_late = refuses_late

    def _note_versions(self, node_id: int, versions: BrokerVersions) -> None:
        self._announced[node_id] = versions
        level = versions.finalized_features.get(FEATURE, 0)
        self._features = max(self._features, (versions.finalized_features_epoch, level))
        self._able[node_id] = all(versions.ranges.get(api, (0, least))[1] >= least for api, least in V2_NEEDS.items())
        self._refuse_late[node_id] = versions.ranges.get(*_VERIFYING)[1] >= _VERIFYING[1][1]
