"""confluent-kafka's `confluent_kafka.schema_registry.json_schema`: taken from that package, whose extras it needs."""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.originals import original


def __getattr__(name: str) -> Any:
    return original("confluent_kafka.schema_registry.json_schema", name, __name__)
