"""AWS_MSK_IAM against a broker that verifies the signed tokens, with keys of the environment and of a role from STS."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aws_msk_iam_sasl_signer  # noqa: F401 -- without the package this file is left out
import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthenticationError
from tests.support.net.msk_broker import REGION, msk_brokers

TOPIC = "t"
WAIT_S = 30.0
USER, SECRET = "AKIDEXAMPLE", "user-canary"
ROLE_USER, ROLE_SECRET, ROLE_TOKEN = "ASIAROLE", "role-canary", "session/token+="
ROLE = "arn:aws:iam::123456789012:role/writer"
_ASSUMED = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><AssumedRoleId>A:s</AssumedRoleId><Arn>{ROLE}/s</Arn></AssumedRoleUser>
<Credentials><AccessKeyId>{ROLE_USER}</AccessKeyId><SecretAccessKey>{ROLE_SECRET}</SecretAccessKey>
<SessionToken>{ROLE_TOKEN}</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Its logins last 1.5 s, its tokens 900."""
    with (
        msk_brokers({USER: SECRET, ROLE_USER: ROLE_SECRET}, login_s=1.5),
        EmbeddedBroker(topics={TOPIC: 1}, sasl_oauthbearer=True) as running,
    ):
        yield running


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, list[str]]]]:
    """Amazon's STS on loopback; yields the forms that were sent to it."""
    forms: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            forms.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(200)
            self.send_header("Content-Length", str(len(_ASSUMED)))
            self.end_headers()
            self.wfile.write(_ASSUMED.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    try:
        yield forms
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def options(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.aws.region": REGION,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        **more,
    }


def test_a_signed_token_is_taken(broker: EmbeddedBroker) -> None:
    with Producer(options(broker)) as producer:
        assert producer.send(TOPIC, b"x").result(WAIT_S).offset >= 0


async def test_an_async_producer_logs_in(broker: EmbeddedBroker) -> None:
    async with AsyncProducer(options(broker)) as producer:
        assert (await producer.send_and_wait(TOPIC, b"x")).offset >= 0


def test_logins_are_renewed_under_load(broker: EmbeddedBroker) -> None:
    with Producer(options(broker)) as producer:
        end = time.monotonic() + WAIT_S
        futures = []
        while producer.metrics()["producer-metrics"]["successful-reauthentication-total"] < 2:
            assert time.monotonic() < end, "no login was renewed"
            futures.append(producer.send(TOPIC, b"x"))
            producer.flush(WAIT_S)
        offsets = [future.result(WAIT_S).offset for future in futures]
        metrics = producer.metrics()["producer-metrics"]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert metrics["failed-reauthentication-total"] == 0
    assert metrics["record-retry-total"] == 0


def test_keys_of_a_role_come_from_sts(broker: EmbeddedBroker, roles: list[dict[str, list[str]]]) -> None:
    chosen = options(broker, **{"sasl.aws.role.arn": ROLE, "sasl.aws.role.session.name": "nightly"})
    with Producer(chosen) as producer:
        assert producer.send(TOPIC, b"x").result(WAIT_S).offset >= 0
    assert (roles[0]["RoleArn"], roles[0]["RoleSessionName"]) == ([ROLE], ["nightly"])


def test_an_endpoint_of_roles_that_is_down_is_in_the_error(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    chosen = options(broker, **{"sasl.aws.role.arn": ROLE})
    with Producer(chosen) as producer, pytest.raises(AuthenticationError, match=r"no token could be signed .*:9/"):
        producer.send(TOPIC, b"x")


@pytest.mark.parametrize("wrong", ["secret", "key", "region"])
def test_a_token_that_is_not_valid_is_refused_at_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    if wrong == "secret":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other-canary")
    elif wrong == "key":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    chosen = options(broker, **({"sasl.aws.region": "us-east-1"} if wrong == "region" else {}))
    with Producer(chosen) as producer, pytest.raises(AuthenticationError, match="invalid_token") as caught:
        producer.send(TOPIC, b"x").result(WAIT_S)
    assert "canary" not in str(caught.value)


def test_a_properties_file_is_enough_for_program_and_command(broker: EmbeddedBroker, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in options(broker).items()), encoding="utf-8")
    with Producer(ProducerConfig.from_file(path)) as producer:
        assert producer.send(TOPIC, b"x").result(WAIT_S).offset >= 0
    (tmp_path / "rows.txt").write_text("a\nb\n", encoding="utf-8")
    command = [sys.executable, "-m", "kafkaprod", "load", "rows.txt", "-t", TOPIC, "-F", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
