"""The client of a schema registry, before any registry answers."""

from __future__ import annotations

import threading

import pytest

from kafkaprod.errors import ConfigError
from kafkaprod.tables.plan import AvroRows
from kafkaprod.tables.registry import client_of, schema_id

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


class Registry:
    """Knows one schema, and answers when it may."""

    def __init__(self, number: int, may_answer: threading.Event) -> None:
        self._number = number
        self._may_answer = may_answer
        self.was_asked = threading.Event()

    def register_schema(self, subject: str, schema: object) -> int:
        self.was_asked.set()
        assert self._may_answer.wait(30)
        return self._number


def test_a_slow_registry_holds_no_other_one_up() -> None:
    never, at_once = threading.Event(), threading.Event()
    at_once.set()
    slow, quick = Registry(1, never), Registry(2, at_once)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(schema_id(slow, "s", '"string"', register=True)))
    thread.start()
    try:
        assert slow.was_asked.wait(30)
        assert schema_id(quick, "s", '"string"', register=True) == 2
        assert found == []
    finally:
        never.set()
        thread.join()
    assert found == [1]
