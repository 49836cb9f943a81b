"""Schemas and their ids in a schema registry, through confluent-kafka's client (extra `registry`).

A schema is registered, or looked up, once for each client and subject; what is sent afterwards costs no request.
Options in a variable or a file (`env:NAME`, `file:PATH`) are read each time: when they have changed, there is another
client.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafkaprod.config.kinds import SecretText
from kafkaprod.config.secret import LiveSecret, without_secrets
from kafkaprod.config.secret_sources import (
    URL_VARIABLE,
    VARIABLE,
    is_allowed_in_process,
    is_url_allowed,
)
from kafkaprod.errors import ConfigError, SerializationError
from kafkaprod.threads import importing

_SECRET: Final = SecretText(may_be_empty=True)
_LOGINS: Final = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret", "ssl.key.password")
_ids: Final[dict[tuple[int, str, str, bool], tuple[Any, int]]] = {}  # the client is kept: its id() stays its own


def client_of(registry: Any) -> Any:
    """Return a client of a registry.

    Args:
        registry: Its address, a mapping with the options of confluent-kafka's SchemaRegistryClient, or such a client.

    Raises:
        ConfigError: Confluent-kafka or what its client needs is not installed, or refuses the options; a variable or
            file that they name cannot be read.
    """
    if isinstance(registry, str):
        registry = {"url": registry}
    if isinstance(registry, Mapping):
        options = {name: _read(name, value) for name, value in registry.items()}
        for url in str(options.get("url", "")).split(","):
            if not is_url_allowed(url.strip()):
                raise ConfigError(f"the schema registry's url is not allowed: the variable {URL_VARIABLE} bounds it")
        return _client(json.dumps(options, sort_keys=True))
    return registry


def _read(name: str, value: Any) -> Any:
    """Return an option's value as it is now."""
    if not isinstance(value, str):
        return value
    try:
        secret = _SECRET.parse(value)
    except ValueError:
        raise ConfigError(f"the schema registry's {name} must be {_SECRET.allowed}") from None
    if isinstance(secret, LiveSecret) and not is_allowed_in_process(secret.place):
        place = f"{name}={secret.place}"
        raise ConfigError(f"the schema registry's {place} is not allowed: the variable {VARIABLE} does not name it")
    return secret.reveal()


@importing
def _confluent() -> ModuleType:
    from confluent_kafka import schema_registry

    return schema_registry


@lru_cache(maxsize=16)
def _client(options: str) -> Any:
    try:
        make_client = _confluent().SchemaRegistryClient.new_client
    except ImportError as error:
        raise ConfigError(f"a schema registry needs packages: pip install 'kafkaprod[registry]' ({error})") from None
    given = json.loads(options)
    try:
        return make_client(dict(given))
    except (ValueError, TypeError, KeyError) as error:
        reason = without_secrets(str(error), *map(str, given.values()))  # an address or a login may be secret
    # Behind the block: the other error is not its context.
    raise ConfigError(f"the schema registry's options {sorted(given)} are refused: {reason}")


def schema_id(registry: Any, subject: str, schema: str | Mapping[str, Any], *, register: bool) -> int:
    """Return a schema's id under a subject.

    Args:
        registry: See `client_of`.
        subject: `orders-value` for the values of the topic orders, as confluent's serializers name it.
        schema: An Avro schema, as JSON text or parsed.
        register: Whether to register it if it is not there.

    Raises:
        SerializationError: The registry refused, does not have it, or cannot be reached.
    """
    client = client_of(registry)
    text = schema if isinstance(schema, str) else json.dumps(schema)
    key = (id(client), subject, text, register)
    known = _ids.get(key)
    if known is not None:
        return known[1]
    wanted = _confluent().Schema(text, schema_type="AVRO")
    try:  # two threads may ask at once, and get the same answer; no thread waits for another one's registry
        if register:
            found = int(client.register_schema(subject, wanted))
        else:
            found = int(client.lookup_schema(subject, wanted).schema_id)
    except Exception as error:
        why = _explained(error, registry)
    else:
        return _ids.setdefault(key, (client, found))[1]
    raise SerializationError(f"schema registry, subject {subject!r}: {why}")  # behind the blocks: see _explained


def latest_schema(registry: Any, subject: str) -> tuple[str, int]:
    """Return the text and the id of a subject's latest schema. Raises SerializationError if there is none."""
    client = client_of(registry)
    try:
        latest = client.get_latest_version(subject)
    except Exception as error:
        why = _explained(error, registry)
    else:
        return _text_and_id(latest, subject)
    raise SerializationError(f"schema registry, subject {subject!r}: {why}")  # behind the blocks: see _explained


def _text_and_id(latest: Any, subject: str) -> tuple[str, int]:
    if latest.schema.schema_type != "AVRO":
        raise SerializationError(f"schema registry, subject {subject!r}: its schema is {latest.schema.schema_type}")
    return latest.schema.schema_str, latest.schema_id


def _explained(error: Exception, registry: Any) -> str:
    """Return what a client's error says, without the login, which a registry may repeat.

    The error itself is neither cause nor context of the one that is raised: it has the login, too, in its request.
    """
    given = registry if isinstance(registry, Mapping) else {"url": registry} if isinstance(registry, str) else {}
    values = [str(_read(name, value)) for name, value in given.items() if name in _LOGINS]
    logins = [unquote(urlsplit(url.strip()).netloc.rpartition("@")[0]) for url in str(given.get("url", "")).split(",")]
    parts = [part for login in (*values, *logins) for part in (login, login.partition(":")[2])]
    return without_secrets(str(error), *parts, *(base64.b64encode(part.encode()).decode() for part in parts if part))
