"""confluent-kafka's clients of schema registries, with the import changed: they are confluent-kafka's own."""

from __future__ import annotations

from importlib import import_module

import confluent_kafka.schema_registry
import pytest

PACKAGE = "kafkaprod.compat.confluent_kafka.schema_registry"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("", "SchemaRegistryClient"),
        (".avro", "AvroSerializer"),
        (".json_schema", "JSONSerializer"),
        (".protobuf", "ProtobufSerializer"),
    ],
)
def test_the_classes_are_those_of_confluent_kafka(module: str, name: str) -> None:
    original = import_module(confluent_kafka.schema_registry.__name__ + module)
    assert getattr(import_module(PACKAGE + module), name) is getattr(original, name)
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(import_module(PACKAGE + module), "no_such_name")  # noqa: B009
