"""The cluster's metadata: brokers, topics, leaders, and when to request them again.

cluster_metadata  the topics that are followed, the requests for them, and what the answers change
refresh           decides when to request metadata again
snapshot          the known state of a cluster, immutable
"""

from kafkaprod.metadata.cluster_metadata import Metadata
from kafkaprod.metadata.snapshot import ClusterSnapshot, TopicMetadata

__all__ = ["ClusterSnapshot", "Metadata", "TopicMetadata"]
