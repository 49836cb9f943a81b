"""The cluster's metadata: brokers, topics, leaders, and when to request them again."""

from kafkaprod.metadata.cluster_metadata import Metadata
from kafkaprod.metadata.snapshot import ClusterSnapshot, TopicInfo

__all__ = ["ClusterSnapshot", "Metadata", "TopicInfo"]
