"""A node of Apache Kafka whose certificates, authority, passwords and tokens change while clients run."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.kafka.cluster import KafkaCluster
from tests.support.net.certificates import Authority
from tests.support.net.relay import Relay
from tests.support.net.signed_tokens import TokenSigner
from tests.support.net.token_issuer import CLIENT_ID, TokenIssuer

USER = "ann"
TOKEN_LIFETIME_S = 4.0
REAUTHENTICATION_MS = 3_000
_AUDIENCE, _ISSUER = "kafka", "https://issuer.test"
_LISTENER = "listener.name.sasl_ssl"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_WAIT_S = 30


class RotatingIssuer(TokenIssuer):
    """Grants tokens for the secret of the day.

    Attributes:
        secret: The one that is right now.
    """

    secret = ""

    def reply(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, bytes]:
        proof = base64.b64encode(f"{CLIENT_ID}:{self.secret}".encode()).decode()
        if headers.get("Authorization") != f"Basic {proof}":
            return 401, b'{"error":"invalid_client"}'
        return 200, self.token_answer()


class RotatingKafka:
    """Rotates everything while it runs, as an operator does: the new authority is trusted before it is used.

    A password has no such overlap: for some milliseconds the broker has another one than the client's file.

    Args:
        directory: Where the files of broker and clients are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._number = 0
        self._old_authority = b""
        self._issuer = RotatingIssuer(lifetime_s=TOKEN_LIFETIME_S)
        signer = TokenSigner(iss=_ISSUER, aud=_AUDIENCE)
        self._issuer.sign, self._issuer.keys = signer.sign, signer.public_keys()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._issuer)
            self._write_files()
            self._cluster = KafkaCluster(
                listeners=("PLAINTEXT", "SASL_SSL"),
                overrides=self._overrides(),
                jvm_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._issuer.keys_url}"],
            )
            self._relay = stack.enter_context(Relay(self._cluster.address(1, "SASL_SSL")))
            self._cluster.advertise(1, *self._relay.address, "SASL_SSL")
            stack.enter_context(self._cluster)
            self._admin = self._cluster.admin()
            for topic in ("passwords", "tokens"):
                self._cluster.create_topic(topic)
            self._set_password()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rotate(self) -> None:
        """Replace authority, certificates, password and client secret, then cut all connections."""
        self._number += 1
        old = self._old_authority
        self._write_files()
        new = self._old_authority
        _replace(self._directory / "client-ca", old + new)
        self._alter("truststore", self._pem("trusted-both", old + new))
        self._alter("keystore", self._directory / f"broker-{self._number}")
        for name in ("client-certificate", "client-key"):
            _replace(self._directory / name, (self._directory / f"{name}-{self._number}").read_bytes())
        self._wait_until_used(new)
        self._alter("truststore", self._pem("trusted", new))
        _replace(self._directory / "client-ca", new)
        self._set_password()
        self._relay.cut()

    def options(self, mechanism: str) -> dict[str, Any]:
        """Options of a client, all secrets as files; OAUTHBEARER is what uses the tokens."""
        of_tokens = {
            "sasl.oauthbearer.token.endpoint.url": self._issuer.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": f"file:{self._directory / 'secret'}",
        }
        of_passwords = {"sasl.username": USER, "sasl.password": f"file:{self._directory / 'password'}"}
        return {
            "bootstrap.servers": self._cluster.bootstrap("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "ssl_cafile": self._directory / "client-ca",
            "ssl_certfile": self._directory / "client-certificate",
            "ssl_keyfile": self._directory / "client-key",
            **(of_tokens if mechanism == "OAUTHBEARER" else of_passwords),
        }

    @property
    def token_count(self) -> int:
        """How many tokens were granted."""
        return len(self._issuer.asked)

    def _write_files(self) -> None:
        number, directory = self._number, self._directory
        authority = Authority(directory, f"authority {number}")
        own = authority.issue(f"server {number}", ["127.0.0.1"])
        client = authority.issue(f"client {number}", ["client"], is_for_clients=True)
        self._old_authority = authority.cafile.read_bytes()
        self._pem("broker", own.keyfile.read_bytes() + own.certfile.read_bytes() + self._old_authority)
        self._pem("client-certificate", client.certfile.read_bytes())
        self._pem("client-key", client.keyfile.read_bytes())
        if number == 0:
            self._pem("trusted", self._old_authority)
            _replace(directory / "client-ca", self._old_authority)
            _replace(directory / "client-certificate", client.certfile.read_bytes())
            _replace(directory / "client-key", client.keyfile.read_bytes())

    def _pem(self, name: str, content: bytes) -> Path:
        path = self._directory / f"{name}-{self._number}"
        path.write_bytes(content)
        return path

    def _overrides(self) -> dict[str, str | int]:
        oauth = f"{_LISTENER}.oauthbearer"
        return {
            f"{_LISTENER}.ssl.client.auth": "required",
            f"{_LISTENER}.ssl.keystore.type": "PEM",
            f"{_LISTENER}.ssl.keystore.location": str(self._directory / "broker-0"),
            f"{_LISTENER}.ssl.truststore.type": "PEM",
            f"{_LISTENER}.ssl.truststore.location": str(self._directory / "trusted-0"),
            f"{_LISTENER}.sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
            f"{_LISTENER}.scram-sha-256.connections.max.reauth.ms": REAUTHENTICATION_MS,
            f"{oauth}.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{oauth}.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": self._issuer.keys_url,
            f"{oauth}.sasl.oauthbearer.expected.audience": _AUDIENCE,
            f"{oauth}.sasl.oauthbearer.expected.issuer": _ISSUER,
            f"{oauth}.connections.max.reauth.ms": 3_600_000,
        }

    def _alter(self, store: str, path: Path) -> None:
        name = f"{_LISTENER}.ssl.{store}.location"
        entry = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(_WAIT_S)

    def _wait_until_used(self, authority: bytes) -> None:
        """Wait until the node, which applies a change after it was answered, has the new authority's certificate."""
        context = ssl.create_default_context(cadata=authority.decode())
        context.load_cert_chain(self._directory / "client-certificate", self._directory / "client-key")
        end_s = time.monotonic() + _WAIT_S
        while True:
            try:
                with (
                    socket.create_connection(self._cluster.address(1, "SASL_SSL"), _WAIT_S) as plain,
                    context.wrap_socket(plain, server_hostname="127.0.0.1"),
                ):
                    return
            except ssl.SSLCertVerificationError:
                assert time.monotonic() < end_s, "the node does not use its new certificate"
                time.sleep(0.01)

    def _set_password(self) -> None:
        password, secret = f"word-{self._number}", f"secret-{self._number}"
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(USER, credential, password.encode())
        ]
        for future in self._admin.alter_user_scram_credentials(changes).values():
            future.result(_WAIT_S)
        _replace(self._directory / "password", password.encode())
        self._issuer.secret = secret
        _replace(self._directory / "secret", secret.encode())


def _replace(path: Path, content: bytes) -> None:
    """Write a file that no reader sees half written."""
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(content)
    os.replace(fresh, path)
