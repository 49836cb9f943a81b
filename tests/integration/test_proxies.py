"""Connections through SOCKS5, SOCKS4 and HTTP CONNECT proxies."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import BootstrapError, ConfigError
from tests.support.canary import all_of
from tests.support.net.certificates import Authority
from tests.support.net.proxies import PASSWORD, USER, LoopbackProxy


@pytest.fixture
def proxy() -> Iterator[LoopbackProxy]:
    with LoopbackProxy() as running:
        yield running


@pytest.mark.parametrize("scheme", ["socks5", "socks4", "http"])
def test_records_go_through_a_proxy_that_knows_the_brokers_names(
    embedded_broker: EmbeddedBroker, proxy: LoopbackProxy, topic_name: str, scheme: str
) -> None:
    port = embedded_broker.bootstrap_servers.rpartition(":")[2]
    url = f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{proxy.port}"
    with Producer(bootstrap_servers=f"inside.invalid:{port}", proxy_url=url) as producer:
        assert producer.send(topic_name, b"v").result(20).offset == 0
        assert PASSWORD not in repr(producer.config)
    assert proxy.targets[0] == f"inside.invalid:{port}"
    assert embedded_broker.bootstrap_servers in proxy.targets  # as the metadata name it


@pytest.mark.parametrize("scheme", ["socks5", "socks4", "http"])
def test_a_login_over_tls_goes_through_a_proxy(tmp_path: Path, proxy: LoopbackProxy, scheme: str) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("broker", names=["127.0.0.1"])
    with (
        EmbeddedBroker(
            topics={"orders": 1}, tls_files=(pem.certfile, pem.keyfile), sasl_users={"ann": "secret"}
        ) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            proxy_url=f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{proxy.port}",
            security_protocol="SASL_SSL",
            ssl_cafile=str(authority.cafile),
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="ann",
            sasl_password="secret",
        ) as producer,
    ):
        assert producer.send_many("orders", [b"v" * 1000] * 10_000).result(60).offsets[-1] == 9_999
        assert set(proxy.targets) == {broker.bootstrap_servers}


@pytest.mark.parametrize("scheme", ["socks5", "socks4", "http"])
def test_a_proxy_that_refuses_is_named_without_the_password(
    embedded_broker: EmbeddedBroker, proxy: LoopbackProxy, scheme: str
) -> None:
    user = "stranger" if scheme == "socks4" else USER  # it has no passwords
    url = f"{scheme}://{user}:wrong-secret@127.0.0.1:{proxy.port}"
    with (
        Producer(bootstrap_servers=embedded_broker.bootstrap_servers, proxy_url=url) as producer,
        pytest.raises(BootstrapError) as caught,
    ):
        producer.check(10)
    assert f"the proxy {scheme}://127.0.0.1:{proxy.port} gives no connection" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
    assert proxy.targets == []


def test_a_proxy_that_is_down_is_named(embedded_broker: EmbeddedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        Producer(
            bootstrap_servers=embedded_broker.bootstrap_servers, proxy_url=f"socks5://127.0.0.1:{port}"
        ) as producer,
        pytest.raises(BootstrapError, match=f"the proxy socks5://127.0.0.1:{port} gives no connection"),
    ):
        producer.check(10)


@pytest.mark.parametrize("url", ["127.0.0.1:1080", "ftp://h:1", "socks5://", "socks5://h:port"])
def test_a_bad_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="proxy_url must be socks5://host:port"):
        Producer(bootstrap_servers="localhost:1", proxy_url=url)


def test_a_proxy_that_repeats_the_login_does_not_have_it_shown(embedded_broker: EmbeddedBroker) -> None:
    login = base64.b64encode(b"me:proxy-secret")
    answer = b"HTTP/1.1 407 \x1b]0;owned\x07 Basic " + login + b" proxy-secret\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.recv(4096)
                    client.sendall(answer)
                    client.close()

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://me:proxy-secret@127.0.0.1:{listener.getsockname()[1]}"
        with (
            Producer(bootstrap_servers=embedded_broker.bootstrap_servers, proxy_url=url) as producer,
            pytest.raises(BootstrapError) as caught,
        ):
            producer.check(10)
        listener.shutdown(socket.SHUT_RDWR)
    shown = all_of(caught.value)
    assert "407" in shown
    for secret in ("proxy-secret", login.decode(), "\x1b"):
        assert secret not in shown
