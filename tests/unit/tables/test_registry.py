"""The client of a schema registry, before any registry answers."""

from __future__ import annotations

import pytest

from kafkaprod.errors import ConfigError
from kafkaprod.tables.plan import AvroRows
from kafkaprod.tables.registry import client_of

CANARY = "canary-1f7a"


@pytest.mark.parametrize(
    "options", [{"url": f"http://me:{CANARY}@h"}, {"url": "http://h", "basic.auth.user.info": CANARY}]
)
def test_options_of_a_registry_are_not_shown(options: dict[str, object]) -> None:
    assert CANARY not in repr(AvroRows(registry=options))


@pytest.mark.parametrize(
    "options",
    [
        {"url": f"htp://{CANARY}"},
        {"url": f"http://me:{CANARY}@h", "no.such.option": CANARY},
        {"url": 7, "basic.auth.user.info": f"me:{CANARY}"},
    ],
)
def test_refused_options_are_named_and_not_shown(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"the schema registry's options \[.*'url'\] are refused") as caught:
        client_of(options)
    assert CANARY not in f"{caught.value} {caught.value.__cause__}"


def test_an_address_and_options_make_the_client_of_confluent_kafka() -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    assert isinstance(client_of("http://h"), SchemaRegistryClient)
    assert isinstance(client_of({"url": "http://h", "basic.auth.user.info": "me:secret"}), SchemaRegistryClient)
