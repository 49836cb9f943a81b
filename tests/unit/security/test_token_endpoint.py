"""What is sent to a token endpoint, what its answers become, and what errors say. The server is real, on loopback."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import _check_support
from kafkaprod.engine.wiring import token_provider
from kafkaprod.errors import AuthenticationError, ConfigError, ConnectionLostError
from kafkaprod.net.http_exchange import exchange
from kafkaprod.security.oauthbearer import BearerToken
from kafkaprod.security.token_endpoint import TokenEndpoint, lifetime_of
from tests.support.canary import CANARY, all_of
from tests.support.net.certificates import Authority
from tests.support.net.token_issuer import CLIENT_ID, SECRET, TokenIssuer, unsigned_token

LOGIN = {"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
CLIENT = {"sasl.oauthbearer.client.id": CLIENT_ID, "sasl.oauthbearer.client.secret": SECRET}


def config(url: str, **more: Any) -> ProducerConfig:
    names = {name.replace("__", "."): value for name, value in more.items()}
    return ProducerConfig.from_options({**LOGIN, "sasl.oauthbearer.token.endpoint.url": url, **names})


def fetch(chosen: ProducerConfig) -> BearerToken:
    send = partial(exchange, connect_timeout_ms=2000, read_timeout_ms=2000, tls=None)
    return TokenEndpoint(chosen, send).fetch()


def with_client(url: str, **more: Any) -> ProducerConfig:
    return config(url, **CLIENT, **more)


@pytest.fixture
def issuer() -> Any:
    with TokenIssuer() as running:
        yield running


def test_client_credentials_are_sent_as_rfc_6749_says(issuer: TokenIssuer) -> None:
    token = fetch(with_client(issuer.url, sasl_oauthbearer_scope="kafka.write", sasl_oauthbearer_extensions="a=1, b=2"))
    asked = issuer.asked[0]
    assert asked.form == {"grant_type": "client_credentials", "scope": "kafka.write"}
    assert base64.b64decode(asked.headers["Authorization"].removeprefix("Basic ")) == b"tests:issuer-secret"
    assert token.extensions == {"a": "1", "b": "2"}
    assert token.lifetime_s == 60.0


def test_id_and_secret_are_percent_encoded_on_request(issuer: TokenIssuer) -> None:
    issuer.answer = (200, b'{"access_token":"x"}')
    more: dict[str, Any] = {"sasl.oauthbearer.client.id": "a b", "sasl.oauthbearer.client.secret": "c:d+"}
    fetch(config(issuer.url, sasl_oauthbearer_header_urlencode=True, **more))
    header = issuer.asked[0].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(header) == b"a+b:c%3Ad%2B"


def test_the_names_of_java_and_of_librdkafka_are_the_same_options() -> None:
    java = {
        "sasl.oauthbearer.client.credentials.client.id": "i",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.jwt.retriever.class": (
            "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever"
        ),
    }
    librdkafka = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "i",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.grant.type": "client_credentials",
    }
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = {"sasl.jaas.config": f"{module} required clientId='i' clientSecret='s';"}
    first, second, third = (config("https://h/t", client_id="x", **names) for names in (java, librdkafka, jaas))
    assert first == second == third


def test_jaas_has_scope_and_extensions() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    entry = f'{module} required clientId="i" clientSecret="s" scope="w" extension_logicalCluster="lkc-1";'
    chosen = config("https://h/t", sasl__jaas__config=entry)
    assert chosen.sasl_oauthbearer_scope == "w"
    assert chosen.sasl_oauthbearer_extensions == "logicalCluster=lkc-1"
    with pytest.raises(ConfigError, match="awsProfile"):
        config("https://h/t", sasl__jaas__config=f'{module} required awsProfile="x";')


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (401, b'{"error":"invalid_client"}', AuthenticationError, "HTTP 401 invalid_client (check the client's id and"),
        (
            400,
            b'{"error":"invalid_scope"}',
            AuthenticationError,
            "HTTP 400 invalid_scope (check sasl_oauthbearer_scope",
        ),
        (400, b'{"error":"unsupported_grant_type"}', AuthenticationError, "sasl_oauthbearer_grant_type=client_cred"),
        (404, b"<html>", AuthenticationError, "HTTP 404 Not Found (check the path of sasl_oauthbearer_token_endpoint"),
        (302, b"", AuthenticationError, "redirects are not followed: give https://elsewhere/"),
        (429, b"", ConnectionLostError, "HTTP 429"),
        (503, b"", ConnectionLostError, "HTTP 503 Service Unavailable"),
        (200, b"<html>", AuthenticationError, "HTTP 200 without access_token in 6 bytes"),
        (200, b"[1]", AuthenticationError, "HTTP 200 without access_token"),
        (200, b"[" * 100_000, AuthenticationError, "HTTP 200 without access_token"),
        (200, b" " * (1 << 21), ConnectionLostError, "the answer exceeds 1048576 bytes"),
    ],
)
def test_an_error_has_endpoint_status_and_hint(
    issuer: TokenIssuer, status: int, body: bytes, kind: type[Exception], text: str
) -> None:
    issuer.answer, issuer.headers = (status, body), {"Location": "https://elsewhere/"}
    with pytest.raises(kind) as caught:
        fetch(with_client(issuer.url))
    assert str(caught.value).startswith(f"token endpoint {issuer.url}")
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_closed_port_is_named(issuer: TokenIssuer) -> None:
    issuer.stop()
    with pytest.raises(
        ConnectionLostError, match=r"token endpoint http://127.0.0.1:\d+/token cannot be used: .*refused"
    ):
        fetch(with_client(issuer.url))


def test_a_query_is_in_no_error(issuer: TokenIssuer) -> None:
    issuer.answer = (500, b"")
    with pytest.raises(ConnectionLostError) as caught:
        fetch(with_client(f"{issuer.url}?key=canary"))
    assert "canary" not in str(caught.value)


def test_a_life_comes_from_the_token_if_the_answer_has_none(issuer: TokenIssuer) -> None:
    issuer.answer = (200, json.dumps({"access_token": unsigned_token("u", 500)}).encode())
    lifetime_s = fetch(with_client(issuer.url)).lifetime_s
    assert lifetime_s is not None
    assert 400 < lifetime_s <= 500


@pytest.mark.parametrize("token", ["", "abc", "a.b.c", "a.e30.c", "a.eyJleHAiOnRydWV9.c", "a.W10.c"])
def test_a_token_without_a_readable_end_has_no_life(token: str) -> None:
    assert lifetime_of(token, 0.0) is None


def test_a_file_holds_the_token_and_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n", encoding="utf-8")
    provider = token_provider(config(path.as_uri()))
    assert isinstance(token := provider.token(), BearerToken)
    assert token.value == "one"
    path.write_text("two", encoding="utf-8")
    assert isinstance(token := provider.token(), BearerToken)
    assert token.value == "two"
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        provider.token()


def test_azure_metadata_is_asked_by_the_query_of_the_configuration(issuer: TokenIssuer) -> None:
    query = "query=api-version=2018-02-01&resource=api%3A%2F%2Fme"
    more = {"sasl_oauthbearer_metadata_authentication_type": "azure_imds", "sasl_oauthbearer_config": query}
    fetch(config(issuer.url, **more))
    asked = issuer.asked[0]
    assert (asked.method, asked.path) == ("GET", "/token?api-version=2018-02-01&resource=api%3A%2F%2Fme")
    assert asked.headers["Metadata"] == "true"


def private_pem(key: Any, passphrase: bytes | None = None) -> str:
    algorithm = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, algorithm)
    return str(key.private_bytes(*form).decode())


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    header, payload, signature = token.split(".")
    decoded = [base64.urlsafe_b64decode(part + "==") for part in (header, payload, signature)]
    return json.loads(decoded[0]), json.loads(decoded[1]), f"{header}.{payload}".encode(), decoded[2]


def test_an_assertion_is_signed_with_rsa(issuer: TokenIssuer, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    (tmp_path / "key.pem").write_text(private_pem(key, b"open"), encoding="utf-8")
    (tmp_path / "template.json").write_text('{"header":{"kid":"k1"},"payload":{"team":"x"}}', encoding="utf-8")
    fetch(
        config(
            issuer.url,
            sasl__oauthbearer__client__id="me",
            sasl_oauthbearer_assertion_private_key_file=tmp_path / "key.pem",
            sasl_oauthbearer_assertion_private_key_passphrase="open",
            sasl_oauthbearer_assertion_claim_iss="me",
            sasl_oauthbearer_assertion_claim_sub="me",
            sasl_oauthbearer_assertion_claim_aud="https://issuer",
            sasl_oauthbearer_assertion_claim_jti_include="true",
            sasl_oauthbearer_assertion_template_file=tmp_path / "template.json",
        )
    )
    form = issuer.asked[0].form
    assert form["grant_type"] == "client_credentials"
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert form["client_id"] == "me"
    header, claims, signed, signature = parts(form["client_assertion"])
    key.public_key().verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    assert header == {"typ": "JWT", "kid": "k1", "alg": "RS256"}
    assert claims["exp"] - claims["iat"] == 300
    assert claims["iat"] - claims["nbf"] == 60
    assert (claims["iss"], claims["sub"], claims["aud"], claims["team"]) == ("me", "me", "https://issuer", "x")
    assert len(claims["jti"]) == 36


def test_jwt_bearer_exchanges_an_assertion_signed_with_ecdsa(issuer: TokenIssuer) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    more = {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
    pem = {"sasl.oauthbearer.assertion.private.key.pem": private_pem(key)}
    fetch(config(issuer.url, sasl_oauthbearer_assertion_algorithm="ES256", **more, **pem))
    form = issuer.asked[0].form
    header, _, signed, signature = parts(form["assertion"])
    assert header["alg"] == "ES256"
    halves = encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
    key.public_key().verify(halves, signed, ec.ECDSA(hashes.SHA256()))


def test_a_ready_assertion_comes_from_a_file(issuer: TokenIssuer, tmp_path: Path) -> None:
    (tmp_path / "a.jwt").write_text("a.b.c\n", encoding="utf-8")
    fetch(config(issuer.url, sasl_oauthbearer_assertion_file=tmp_path / "a.jwt"))
    assert issuer.asked[0].form["client_assertion"] == "a.b.c"


def test_a_key_that_does_not_fit_is_refused(issuer: TokenIssuer) -> None:
    pem = private_pem(ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(ConfigError, match="RS256 does not fit"):
        fetch(config(issuer.url, sasl_oauthbearer_assertion_private_key_pem=pem))
    with pytest.raises(ConfigError, match="cannot be used"):
        fetch(config(issuer.url, sasl_oauthbearer_assertion_private_key_pem="canary"))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "client_id and sasl_oauthbearer_client_credentials_client_secret, or an assertion"),
        ({"sasl.oauthbearer.client.id": "i"}, "or an assertion"),
        ({**CLIENT, "oauth_cb": print}, "given: sasl_oauthbearer_token_endpoint_url, oauth_cb"),
        ({**CLIENT, "sasl.oauthbearer.grant.type": "jwt-bearer"}, "needs sasl_oauthbearer_assertion_file"),
        (
            {"sasl_oauthbearer_assertion_file": "a", "sasl_oauthbearer_assertion_private_key_file": "b"},
            "given together",
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config("https://h/t", **more)


@pytest.mark.parametrize("url", ["ftp://h/t", "h", "https://user:canary@h/t", "https://", "https://h:x/t", "file:", 5])
def test_an_address_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        with_client(url)
    assert "begins with https: or http: or file:" in str(caught.value)
    assert "canary" not in all_of(caught.value)


@pytest.fixture
def tls_endpoint(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of a server with TLS that refuses POST, and the file of its authority."""
    authority = Authority(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    context = authority.issue("endpoint", ["127.0.0.1"]).server_context()
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/t", authority.cafile
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_certificate_that_is_not_trusted_is_named_with_the_remedy(tls_endpoint: tuple[str, Path]) -> None:
    url, authority = tls_endpoint
    with pytest.raises(AuthenticationError, match=r"its certificate was refused: .*https_ca_location"):
        token_provider(with_client(url)).token()
    text = authority.read_text(encoding="utf-8")
    for trusted in ({"https.ca.location": authority}, {"https.ca.pem": text}):
        with pytest.raises(ConnectionLostError, match="HTTP 501"):
            token_provider(with_client(url, **trusted)).token()


def test_an_authority_that_is_no_pem_is_refused() -> None:
    with pytest.raises(ConfigError, match="https_ca_pem of 6 characters"):
        token_provider(with_client("https://h/t", https_ca_pem="canary"))


@pytest.mark.parametrize("text", ["{grant}{grant:>4000}", "{grant}{x}", "{grant}{0}", "{grant}{", "{grant.__class__}"])
def test_text_of_the_provider_is_shown_and_is_no_format(issuer: TokenIssuer, text: str) -> None:
    issuer.answer, issuer.headers = (302, b""), {"Location": text}
    with pytest.raises(AuthenticationError) as caught:
        fetch(with_client(issuer.url))
    assert text in str(caught.value)
    issuer.answer = (400, json.dumps({"error": text, "error_description": text}).encode())
    with pytest.raises(AuthenticationError) as caught:
        fetch(with_client(issuer.url))
    assert f"{text}: {text}" in str(caught.value)


class EchoingIssuer(BaseHTTPRequestHandler):
    """Refuses, and repeats what it was sent in each place that an error shows."""

    status = 400

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        echo = f"{form} {self.headers['Authorization']} {SECRET}"
        self.send_response(self.status, echo)
        self.send_header("Location", f"http://elsewhere/?code={SECRET}")
        self.end_headers()
        if self.status == 400:
            self.wfile.write(json.dumps({"error": "bad", "error_description": echo}).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize("status", [302, 400, 401])
def test_an_endpoint_that_repeats_the_secret_does_not_have_it_shown(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(EchoingIssuer, "status", status)
    with HTTPServer(("127.0.0.1", 0), EchoingIssuer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(AuthenticationError, match=f"HTTP {status}") as caught:
            fetch(with_client(f"http://127.0.0.1:{server.server_port}/token?code={CANARY}"))
    basic = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
    for secret in (SECRET, basic, CANARY):
        assert secret not in all_of(caught.value)


class Parrot:
    """Answers one request with parts of it, as no HTTP server would."""

    def __init__(self) -> None:
        self.answer: Callable[[bytes, bytes], bytes] = lambda *_: b""  # of the request's first line and its login
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/t?code={CANARY} \xe9"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, client.makefile("rb") as lines:
            first = lines.readline()
            login = next((line for line in lines if line.startswith(b"Authorization:")), b"").rstrip()
            client.sendall(self.answer(first, login))


@pytest.fixture
def parrot() -> Iterator[Parrot]:
    """A server that answers as the test says, once."""
    with Parrot() as server:
        yield server


@pytest.mark.parametrize(
    "answer",
    [
        lambda first, _: first,
        lambda _, login: login + b"\r\n",
        lambda _, login: b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + login,
        lambda _, login: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + login + b"\r\n",
    ],
    ids=["first line", "login as the status", "login, cut", "login as a chunk"],
)
def test_what_is_no_http_does_not_show_what_it_repeats(parrot: Parrot, answer: Any) -> None:
    parrot.answer = answer
    with pytest.raises(ConnectionLostError, match="cannot be used") as caught:
        fetch(with_client(parrot.url))
    basic = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
    for secret in (SECRET, basic, CANARY):
        assert secret not in all_of(caught.value)


def test_a_query_is_sent_though_it_has_characters_that_http_does_not_have(issuer: TokenIssuer) -> None:
    fetch(with_client(f"{issuer.url}?a=%20b&c=d e\xe9\x01"))
    assert issuer.asked[0].path == "/token?a=%20b&c=d%20e%C3%A9%01"


def test_a_name_that_no_host_can_have_is_refused_as_an_endpoint() -> None:
    with pytest.raises(ConnectionLostError, match=r"cannot be used: .*label"):
        fetch(with_client(f"http://{'h' * 70}/t"))


def test_the_query_of_an_address_is_shown_nowhere() -> None:
    url = f"https://h/token?code={CANARY}"
    wrong = {"sasl.oauthbearer.token.endpoint.url": f"ftp://h/?code={CANARY}"}
    assert CANARY not in repr(with_client(url))
    for options in ({}, {"sasl.mechanism": "PLAIN"}, wrong):
        with pytest.raises(ConfigError) as caught:
            ProducerConfig.from_options({**LOGIN, "sasl.oauthbearer.token.endpoint.url": url, **options})
        assert CANARY not in all_of(caught.value)


def test_the_scheme_of_an_address_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c\n")
    assert fetch(config(f"FILE://{tmp_path}/token")).value == "a.b.c"


def test_a_token_or_assertion_that_is_not_utf_8_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(CANARY.encode() + b"\xff")
    for chosen in (config(path.as_uri()), config("http://h/", sasl_oauthbearer_assertion_file=str(path))):
        with pytest.raises(ConfigError, match=f"byte 0xff in position {len(CANARY)}: ") as caught:
            fetch(chosen)
        assert CANARY not in all_of(caught.value)


@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_a_file_that_never_ends_is_refused(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    place = tmp_path / path  # an absolute path stays what it is
    with pytest.raises(ConfigError, match="not a regular file"):
        fetch(config(place.as_uri()))
    with pytest.raises(ConfigError, match="not a regular file"):
        fetch(config("http://h/", sasl_oauthbearer_assertion_file=str(place)))
    with pytest.raises(ConfigError, match="file:PATH of a readable file"):
        config("http://h/", sasl_oauthbearer_client_secret=f"file:{place}")


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"security.protocol": "SASL_SSL"}, "travel unencrypted"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://h/"}, "sends the token unencrypted"),
    ],
)
def test_tokens_and_secrets_in_clear_bring_a_warning(
    caplog: pytest.LogCaptureFixture, options: dict[str, str], warning: str
) -> None:
    chosen = {**LOGIN, **CLIENT, "sasl.oauthbearer.token.endpoint.url": "http://h/", **options}
    _check_support(ProducerConfig.from_options(chosen), keeps_identity=False)
    assert [warning in record.getMessage() for record in caplog.records] == [True]
