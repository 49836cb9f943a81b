"""Our declarations against Apache Kafka's message definitions, as kafka-python ships them.

The byte comparisons cannot see what a declaration does where no bytes are written: defaults, which values may be
dropped, where null is legal. This compares those, field by field.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest

from kafkaprod.protocol.field_types import ArrayType, FieldType, FixedType, ScalarType, StructType
from kafkaprod.protocol.plans import FieldSpec
from kafkaprod.protocol.schema import Message
from tests.support.net.protocol_samples import MESSAGE_CLASSES, kind_of

DEFINITIONS = files("kafka.protocol.schemas") / "resources"
NOT_SHIPPED = {
    *("ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "GetTelemetrySubscriptions", "PushTelemetry"),
    *("AllocateProducerIds", "AlterPartition", "AssignReplicasToDirs", "BrokerHeartbeat", "BrokerRegistration"),
    "Envelope",  # as those before it, between brokers
    *(f"{name}DelegationToken" for name in ("Create", "Describe", "Expire", "Renew")),
    "ChangeSettings",  # of the embedded cluster alone
    "ReplicateMetadata",  # the same
    "UnregisterBroker",
}
NEWER_THAN_SHIPPED = {"ApiVersions": 4, "DeleteGroups": 2, "TxnOffsetCommit": 5}  # their last version there
RENAMED_SINCE = {("TxnOffsetCommitRequest", "GenerationId"): "GenerationIdOrMemberEpoch"}
RENAMED_STRUCTS = {  # Kafka gives a struct of the request and another one of the response the same name
    "EntryResult": "EntryData",
    "QuorumPartition": "PartitionData",
    "QuorumTopic": "TopicData",
}
FIXED_NAMES = {
    "?": "bool",
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "q": "int64",
    "H": "uint16",
    "I": "uint32",
    "d": "float64",
}


def name_of(message_class: type[Message]) -> str:
    return message_class.__name__.removesuffix("Request").removesuffix("Response")


SHIPPED = [message_class for message_class in MESSAGE_CLASSES if name_of(message_class) not in NOT_SHIPPED]


def definition_of(message_class: type[Message]) -> dict[str, Any]:
    file = DEFINITIONS / f"{message_class.__name__}.json"
    if not file.is_file():
        name = name_of(message_class)
        pytest.fail(f"kafka-python ships no definition of {name}: compare it with Kafka's, then add it to NOT_SHIPPED")
    text = file.read_text(encoding="utf-8")
    parsed: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return parsed


def in_range(versions: str, version: int) -> bool:
    """Kafka's notation: "3", "3-5", "3+" or "none"."""
    if versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    return int(first) <= version and (versions.endswith("+") or version <= int(last or first))


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z][a-z])", r"_\1\2", name).lower()


def wire_type(field_type: Any) -> str:
    if isinstance(field_type, FixedType):
        return FIXED_NAMES[field_type.format]
    if isinstance(field_type, ScalarType):
        return kind_of(field_type)
    if isinstance(field_type, ArrayType):
        return "[]" + wire_type(field_type.element)
    name = str((field_type.struct_class if isinstance(field_type, StructType) else field_type).__name__)
    return RENAMED_STRUCTS.get(name, name)


def struct_of(field_type: FieldType) -> Any:
    if isinstance(field_type, ArrayType) and isinstance(field_type.element, type):
        return field_type.element
    return field_type.struct_class if isinstance(field_type, StructType) else None


def default_of(definition: dict[str, Any], field: FieldSpec) -> Any:
    """Kafka's default as our value. Where null is legal in every version, an unset field of ours is null, not empty."""
    text = str(definition.get("default", ""))
    if text == "":
        return field.type.zero()
    if text == "null":
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text, 0)


def compare(ours: tuple[FieldSpec, ...], theirs: list[dict[str, Any]], common: dict[str, Any], versions: range) -> None:
    """Fields that exist in none of the versions are left out on their side; order counts."""
    present = [item for item in theirs if any(in_range(item["versions"], version) for version in versions)]
    newest = [field for field in ours if any(field.is_in(version) for version in versions)]
    assert [field.name for field in newest] == [snake_case(item["name"]) for item in present]
    for field, definition in zip(newest, present, strict=True):
        inside = [version for version in versions if in_range(definition["versions"], version)]
        assert [version for version in versions if field.is_in(version)] == inside, field.name
        assert wire_type(field.type) == definition["type"], field.name
        assert field.tag == definition.get("tag"), field.name
        if definition["type"] not in ("uuid", "records"):
            nullable = [in_range(definition.get("nullableVersions", "none"), version) for version in inside]
            assert [field.type.is_nullable(version) for version in inside] == nullable, field.name
        assert field.make_default() == default_of(definition, field), field.name
        if len(inside) < len(versions):
            assert field.is_ignorable == (str(definition.get("ignorable", False)).lower() == "true"), field.name
        nested = struct_of(field.type)
        if nested is not None:
            type_name = definition["type"].removeprefix("[]")
            compare(
                nested.fields, definition.get("fields") or common[type_name], common, range(inside[0], inside[-1] + 1)
            )


@pytest.mark.parametrize("message_class", SHIPPED, ids=lambda message_class: message_class.__name__)
def test_a_declaration_says_what_kafka_says(message_class: type[Message]) -> None:
    definition = definition_of(message_class)
    lowest, highest = message_class.versions
    known_highest = NEWER_THAN_SHIPPED.get(name_of(message_class), highest)
    versions = range(lowest, known_highest + 1)
    common = {item["name"]: item["fields"] for item in definition.get("commonStructs", [])}
    for item in definition["fields"]:
        item["name"] = RENAMED_SINCE.get((message_class.__name__, item["name"]), item["name"])

    assert definition["apiKey"] == message_class.api
    assert all(in_range(definition["validVersions"], version) for version in versions)
    flexible = [in_range(definition["flexibleVersions"], version) for version in versions]
    assert [message_class.is_flexible(version) for version in versions] == flexible
    compare(message_class.fields, definition["fields"], common, versions)
