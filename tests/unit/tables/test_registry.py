"""The client of a schema registry, before any registry answers."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kafkaprod.errors import ConfigError, SerializationError
from kafkaprod.tables.plan import AvroRows
from kafkaprod.tables.registry import client_of, latest_schema, schema_id
from tests.support.canary import all_of

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
    assert CANARY not in all_of(caught.value)


class EchoingRegistry(BaseHTTPRequestHandler):
    """Refuses, and repeats the login."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        login = self.headers["Authorization"]
        plain = base64.b64decode(login.removeprefix("Basic ")).decode() if login.startswith("Basic ") else ""
        body = json.dumps({"error_code": 40101, "message": f"no: {login} {plain}"}).encode()
        self.send_response(401, "no")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def echoing_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), EchoingRegistry) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    ("user", "options"),
    [
        ("", {"basic.auth.user.info": f"me:{CANARY}"}),
        (f"me:{CANARY}@", {}),
        ("", {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": CANARY}),
    ],
)
@pytest.mark.parametrize("is_lookup", [True, False])
def test_a_registry_that_repeats_the_login_does_not_have_it_shown(
    echoing_port: int, user: str, options: dict[str, str], is_lookup: bool
) -> None:
    more = (
        {"bearer.auth.logical.cluster": "c", "bearer.auth.identity.pool.id": "p"}
        if "bearer.auth.token" in options
        else {}
    )
    registry: Any = {"url": f"http://{user}127.0.0.1:{echoing_port}", **options, **more}
    if user:
        registry = registry["url"]
    with pytest.raises(SerializationError, match="no: ") as caught:
        latest_schema(registry, "s") if is_lookup else schema_id(registry, "s", '"string"', register=True)
    basic = base64.b64encode(f"me:{CANARY}".encode()).decode()
    for secret in (CANARY, basic):
        assert secret not in all_of(caught.value)


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
