"""confluent-kafka's `confluent_kafka.schema_registry`: taken from that package, whose extras it needs.

avro         `confluent_kafka.schema_registry.avro`
json_schema  `confluent_kafka.schema_registry.json_schema`
protobuf     `confluent_kafka.schema_registry.protobuf`
"""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.originals import original


def __getattr__(name: str) -> Any:
    return original("confluent_kafka.schema_registry", name, __name__)
