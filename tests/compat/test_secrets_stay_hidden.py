"""One text is the value of each secret option of other clients' interfaces: no repr, error, log or report has it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.compat.aiokafka import AIOKafkaProducer
from kafkaprod.compat.confluent_kafka import Producer
from kafkaprod.compat.kafka_python import KafkaProducer
from kafkaprod.config import OPTIONS
from kafkaprod.config.kinds import SecretText
from tests.support.canary import CANARY, all_of

NOWHERE = "127.0.0.1:9"
DOTTED = sorted(
    {
        *("sasl.jaas.config", "ssl.keystore.password", "sasl.pasword", "password", "http.proxy"),
        *(
            name
            for option in OPTIONS.values()
            if isinstance(option.kind, SecretText)
            for name in (option.dotted_name, *option.aliases)
        ),
    }
)
OF_PYTHON = sorted(
    {
        *("sasl_plain_password", "sasl_password", "ssl_password", "password", "sasl_kerberos_name", "sasl_oauth_token"),
        *(name for name in kafka.KafkaProducer.DEFAULT_CONFIG if "password" in name),
    }
)
VALUES: list[Any] = [CANARY, CANARY.encode(), [CANARY], {CANARY: CANARY}, f"\x1b{CANARY}"]
LOGIN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "ann"}
CONFLUENT_LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}


def confluent(options: dict[str, Any]) -> str:
    producer = Producer({"bootstrap.servers": NOWHERE, **options})
    try:
        return f"{producer!r} {producer} {producer._settings!r}"
    finally:
        producer.close()


def kafka_python(options: dict[str, Any]) -> str:
    producer = KafkaProducer(bootstrap_servers=NOWHERE, bootstrap_timeout_ms=1, **options)
    producer.close(0)
    return f"{producer!r} {producer}"


def of_aiokafka(options: dict[str, Any]) -> str:
    async def make() -> str:
        producer = AIOKafkaProducer(bootstrap_servers=NOWHERE, **options)
        return f"{producer!r} {producer}"

    return asyncio.run(make())


CASES: list[tuple[Callable[[dict[str, Any]], str], str, dict[str, Any]]] = [
    *((confluent, name, CONFLUENT_LOGIN) for name in DOTTED),
    *((kafka_python, name, LOGIN) for name in OF_PYTHON),
    *((of_aiokafka, name, LOGIN) for name in OF_PYTHON),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("make", "name", "login"), CASES, ids=lambda each: getattr(each, "__name__", str(each)[:40]))
def test_no_option_is_shown(
    make: Callable[[dict[str, Any]], str], name: str, login: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    for value in VALUES:
        for more in ({}, login):
            try:
                shown = make({**more, name: value})
            except Exception as error:
                shown = all_of(error)
            assert CANARY not in shown, (name, value)
    assert CANARY not in caplog.text


@pytest.fixture(scope="module")
def with_logins() -> Iterator[str]:
    with EmbeddedBroker(topics={"t": 1}, sasl_users={"ann": "right"}) as broker:
        yield broker.bootstrap_servers


def test_a_refused_login_of_confluent_shows_no_secret(with_logins: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    shown: list[str] = []
    options = {
        **CONFLUENT_LOGIN,
        "bootstrap.servers": with_logins,
        "sasl.password": CANARY,
        "message.timeout.ms": 500,
        "statistics.interval.ms": 50,
        "error_cb": lambda error: shown.append(f"{error!r} {error}"),
        "stats_cb": shown.append,
        "logger": logging.getLogger("canary"),
    }
    producer = Producer(options)
    producer.produce("t", b"v", on_delivery=lambda error, message: shown.append(f"{error!r} {message!r}"))
    producer.flush(10)
    producer.close()
    assert shown
    assert caplog.records
    assert CANARY not in json.dumps(shown) + caplog.text


def test_a_refused_login_of_kafka_python_shows_no_secret(with_logins: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    with pytest.raises(Exception) as caught:
        KafkaProducer(bootstrap_servers=with_logins, sasl_plain_password=CANARY, **LOGIN).send("t", b"v").get(10)
    assert caplog.records
    assert CANARY not in all_of(caught.value) + caplog.text


async def test_a_refused_login_of_aiokafka_shows_no_secret(with_logins: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    producer = AIOKafkaProducer(bootstrap_servers=with_logins, sasl_plain_password=CANARY, **LOGIN)
    with pytest.raises(Exception) as caught:
        await producer.start()
    await producer.stop()
    assert issubclass(type(caught.value), aiokafka.errors.KafkaError)
    assert caplog.records
    assert CANARY not in all_of(caught.value) + caplog.text
