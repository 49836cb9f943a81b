"""kafkaprod: a compiled, high-throughput Apache Kafka producer for Python."""

__version__ = "0.1.0"
