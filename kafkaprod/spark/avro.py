"""Values as Avro records (`value.format=avro`): the options, and the schema that the driver takes once for a write.

Tasks get the schema and its id with the plan: no executor talks to the registry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.config.kinds import SecretText
from kafkaprod.config.secret import LiveSecret
from kafkaprod.config.secret_sources import VARIABLE, is_allowed_in_process
from kafkaprod.errors import ConfigError, InvalidRecordError, SerializationError
from kafkaprod.tables import AvroRows
from kafkaprod.tables.avro import AvroEncoder

REGISTRY_PREFIX: Final = "schema.registry."
_SECRET: Final = SecretText()
AVRO_OPTIONS: Final = frozenset(("value.schema", "value.schema.id", "value.subject", "auto.register.schemas"))


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Where the schema of the values comes from.

    Attributes:
        schema: Its JSON text; None: the subject's latest.
        schema_id: Its number in a registry that is not used here; None: the registry's answer.
        registry: Options of confluent-kafka's SchemaRegistryClient; None: no registry. Not shown, for their secrets.
        subject: The schema's name in the registry; None: the topic's name and `-value`.
        registers: Whether a schema that the registry does not have is registered.
    """

    schema: str | None
    schema_id: int | None
    registry: Mapping[str, str] | None = field(repr=False)
    subject: str | None
    registers: bool


def parse_avro_options(given: Mapping[str, Any], value_format: str) -> AvroOptions | None:
    """Return the options of Avro values; None for another format.

    Raises:
        ConfigError: One is wrong, lacks another, or belongs to another format.
    """
    registry = {
        name.removeprefix(REGISTRY_PREFIX): _registry_value(name, str(value))
        for name, value in given.items()
        if name.startswith(REGISTRY_PREFIX)
    }
    if value_format != "avro":
        for name in sorted(given):
            if name in AVRO_OPTIONS or name.startswith(REGISTRY_PREFIX):
                raise ConfigError(f"{name} needs value.format=avro")
        return None
    schema, number = given.get("value.schema"), given.get("value.schema.id")
    if registry and "url" not in registry:
        raise ConfigError(f"{REGISTRY_PREFIX}{min(registry)} needs schema.registry.url")
    if number is not None and (schema is None or registry):
        raise ConfigError("value.schema.id needs value.schema, and no schema.registry.url: the registry has the id")
    if not registry and (schema is None or number is None):
        raise ConfigError("value.format=avro needs schema.registry.url, or value.schema and value.schema.id")
    for name in ("value.subject", "auto.register.schemas"):
        if name in given and not registry:
            raise ConfigError(f"{name} needs schema.registry.url")
    registers = str(given.get("auto.register.schemas", "true")).lower()
    if registers not in ("true", "false"):
        raise ConfigError(f"auto.register.schemas={given['auto.register.schemas']!r} must be true or false")
    if number is not None and not str(number).isdecimal():
        raise ConfigError(f"value.schema.id={number!r} must be a number")
    return AvroOptions(
        schema=None if schema is None else str(schema),
        schema_id=None if number is None else int(number),
        registry=registry or None,
        subject=given.get("value.subject"),
        registers=registers == "true",
    )


def avro_rows(options: AvroOptions, topic: str | None, columns: Sequence[str]) -> AvroRows:
    """Return how a write's values are written: with schema and id. On the driver; may ask the registry.

    Args:
        options: As given.
        topic: The topic of all rows; None: a column names it.
        columns: Names of the columns of the value.

    Raises:
        ConfigError: The schema does not fit the columns, or does not describe a record, or the registry refused.
    """
    if options.registry is not None and options.subject is None and topic is None:
        raise ConfigError(
            "value.format=avro with a column 'topic' needs value.subject, the schema's name in the registry"
        )
    rows = AvroRows(
        options.schema,
        options.schema_id,
        registry=options.registry,
        subject=options.subject,
        register=options.registers,
    )
    try:
        schema, number = rows.resolve(topic)
        AvroEncoder(schema, number)
    except (InvalidRecordError, SerializationError) as error:
        raise ConfigError(f"value.format=avro: {error}") from error
    text = schema if isinstance(schema, str) else json.dumps(schema)
    _check_columns(json.loads(text), columns)
    return AvroRows(text, number, columns=list(columns))


def _check_columns(schema: Any, columns: Sequence[str]) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise ConfigError("value.format=avro needs the schema of a record")
    fields = {each["name"]: each for each in schema["fields"]}
    for name in columns:
        if name not in fields:
            raise ConfigError(
                f"column {name!r} is no field of the Avro schema, which has {', '.join(fields)}: leave it out by "
                "value.columns"
            )
    for name, each in fields.items():
        if name not in columns and "default" not in each:
            raise ConfigError(f"the Avro schema has a field {name!r} without a default, but no column is named so")


def _registry_value(name: str, value: str) -> str:
    """Return an option of the registry; `env:NAME` and `file:PATH` are followed as in the producer's passwords."""
    try:
        secret = _SECRET.parse(value)
    except ValueError:
        raise ConfigError(f"{name} must be {_SECRET.allowed}") from None
    if isinstance(secret, LiveSecret) and not is_allowed_in_process(secret.place):
        raise ConfigError(f"{name}={secret.place} is not allowed: the variable {VARIABLE} does not name that place")
    return secret.reveal()
