"""One text is the value of every secret option, in every form: no repr, error, cause, log, metric or output has it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import AvroRows, Producer
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.embedding.cluster_options import ClusterOptions
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import OPTIONS, ProducerConfig
from kafkaprod.config.kinds import SecretText
from kafkaprod.config.option import Option
from kafkaprod.errors import DeliveryTimeoutError, KafkaError
from kafkaprod.loader.attempt import LoadOptions
from tests.support.canary import CANARY, all_of

SECRETS = [option for option in OPTIONS.values() if isinstance(option.kind, SecretText)]
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.plain.username": "ann"}
NEEDED: dict[str, dict[str, str]] = {
    "sasl_plain_password": {**LOGIN, "sasl.mechanism": "PLAIN"},
    "proxy_url": {},
    "sasl_oauthbearer_client_credentials_client_secret": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/",
        "sasl.oauthbearer.client.id": "c",
    },
}
"""With these a configuration that has the secret is whole."""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The text as every kind of value that a program could give."""
    (tmp_path / "secret").write_text(CANARY)
    (tmp_path / "damaged").write_bytes(CANARY.encode() + b"\xff")
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("DAMAGED", f"{CANARY}\udcff")  # as a byte that is not UTF-8 comes
    url = f"socks5://me:{CANARY}@127.0.0.1:9"
    places = [CANARY, "env:CANARY", f"file:{tmp_path}/secret", url, f"{url}/%zz", f"\x1b{CANARY}", f"{CANARY}\ud800"]
    places += ["env:DAMAGED", f"file:{tmp_path}/damaged", f"socks5://me:{CANARY}", f"socks5://me:{CANARY}\u2100@h:9"]
    return [*places, [CANARY], (CANARY,), {CANARY: CANARY}, CANARY.encode(), {CANARY}]


def names_of(option: Option) -> Iterator[str]:
    """Every spelling, and one that is mistyped."""
    for dotted in (option.dotted_name, *option.aliases):
        yield dotted
        yield dotted.replace(".", "_")
        yield f"{dotted}s"


@pytest.mark.parametrize("option", SECRETS, ids=lambda option: option.name)
def test_a_configuration_shows_no_secret(option: Option, places: list[Any]) -> None:
    kept = 0
    for name in names_of(option):
        for value in places:
            for more in ({}, NEEDED.get(option.name, {}), {"linger.ms": "x"}):
                given = {"bootstrap.servers": "127.0.0.1:9", **more, name: value}
                try:
                    config = ProducerConfig.from_options(given)
                except KafkaError as error:
                    shown = all_of(error)
                else:
                    kept += 1
                    shown = f"{config!r} {config} {getattr(config, option.name)!r} {getattr(config, option.name)}"
                assert CANARY not in shown, (name, value)
    assert kept or option.name not in NEEDED


@pytest.mark.parametrize(
    "wrong", ["{}", "socks5://me:{}", "socks5://me:{}\u2100@h:9", "htp://me:{}@h:9", "socks5://{}:x"]
)
def test_an_address_of_a_proxy_that_cannot_be_used_is_not_shown(wrong: str) -> None:
    with pytest.raises(KafkaError) as caught:
        Producer({"bootstrap.servers": "127.0.0.1:9", "proxy.url": wrong.format(CANARY)})
    assert CANARY not in all_of(caught.value)


def test_reprs_of_rows_show_no_secret() -> None:
    registry = {"url": f"http://u:{CANARY}@h", "basic.auth.user.info": f"u:{CANARY}", "bearer.auth.token": CANARY}
    assert CANARY not in repr(AvroRows(registry=registry, subject="s"))


@pytest.mark.parametrize(
    ("kept", "field"), [(LoadOptions, "producer"), (ClusterOptions, "sasl_users"), (BrokerConfig, "sasl_users")]
)
def test_what_keeps_passwords_does_not_show_them(kept: Any, field: str) -> None:
    (found,) = [each for each in dataclasses.fields(kept) if each.name == field]
    assert not found.repr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_refused_login_shows_no_secret(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, "kafkaprod")
    logging.getLogger("kafkaprod").setLevel(1)
    with EmbeddedBroker(topics={"t": 1}, sasl_users={"ann": "right"}) as broker:
        options = {**LOGIN, "sasl.mechanism": mechanism, "sasl.plain.password": CANARY}
        with Producer({"bootstrap.servers": broker.bootstrap_servers, **options}, max_block_ms=5000) as producer:
            with pytest.raises(KafkaError) as caught:
                producer.send("t", b"v").result(10)
            shown = [all_of(caught.value), repr(producer), repr(producer.config), repr(producer.metrics())]
            shown += [repr(vars(producer.config)) if hasattr(producer.config, "__dict__") else ""]
        shown += [record.getMessage() + repr(record.args) + repr(record.exc_info) for record in caplog.records]
    assert caplog.records
    assert not [text for text in shown if CANARY in text]


COMMANDS = (
    ("doctor",),
    ("doctor", "--json"),
    ("topics", "list"),
    ("produce", "-t", "t"),
    ("tail", "t"),
    ("transactions", "list"),
    ("load", "-t", "t", "-"),
    ("perf", "-t", "t", "-n", "1"),
)


def test_commands_show_no_secret_and_have_none_in_their_arguments(tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "bootstrap.servers=127.0.0.1:9\nmax.block.ms=1000\n"
        + "".join(f"{name}={value}\n" for name, value in LOGIN.items())
        + f"sasl.mechanism=PLAIN\nsasl.plain.password={CANARY}\n"
    )
    running = {}
    for command in COMMANDS:
        name, *rest = command
        arguments = [sys.executable, "-m", "kafkaprod", name, *rest, "-F", str(properties)]
        running[command] = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path
        )
    ends_s = time.monotonic() + 120
    for command, process in running.items():
        with contextlib.suppress(OSError):
            assert CANARY.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        output, _ = process.communicate(timeout=ends_s - time.monotonic())
        assert output, command
        assert CANARY.encode() not in output, command
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path != properties]
    assert not [path for path in left if CANARY.encode() in path.read_bytes()]
    assert CANARY not in os.environ.values()


def test_a_place_that_leads_elsewhere_later_fails_logins_and_not_the_producer(tmp_path: Path) -> None:
    """The login is refused on the sender thread, which goes on; it succeeds once the place is right again."""
    allowed, place = tmp_path / "allowed", tmp_path / "allowed" / "password"
    allowed.mkdir()
    place.write_text("alice")
    (tmp_path / "other").write_text("alice")
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    options |= {"sasl_plain_username": "alice", "sasl_plain_password": f"file:{place}", "delivery_timeout_ms": 2_000}
    options |= {"allowed_secret_sources": f"file:{allowed}/", "request_timeout_ms": 1_000}
    login = {"listeners": "SASL_PLAINTEXT://:0", "sasl_users": {"alice": "alice"}}
    with (
        EmbeddedBroker(topics={"t": 1}, **login) as broker,  # type: ignore[arg-type]
        Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer,
    ):
        producer.send("t", b"1").result(30)
        place.unlink()
        place.symlink_to(tmp_path / "other")
        broker.kill()
        broker.start()
        with pytest.raises(DeliveryTimeoutError, match="is not allowed: allowed_secret_sources"):
            producer.send("t", b"2").result(30)
        place.unlink()
        place.write_text("alice")
        assert producer.send("t", b"3").result(30).offset == 1
