"""Bugs that Apache Kafka had in replication and its controller, each as a case that fails when its rule is off."""
