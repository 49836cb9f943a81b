"""Errors of other clients' consumers and admin clients, and of this producer: one `except` catches both."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any

import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.error
import kafka.errors
import pytest

from kafkaprod.compat import aiokafka as our_aiokafka
from kafkaprod.compat import confluent_kafka as our_confluent
from kafkaprod.compat import kafka_python as our_kafka_python
from kafkaprod.compat.aiokafka import errors as our_aiokafka_errors
from kafkaprod.compat.confluent_kafka import error as our_confluent_error
from kafkaprod.compat.kafka_python import errors as our_kafka_errors

ROOMS = [
    (confluent_kafka, our_confluent),
    (confluent_kafka.error, our_confluent_error),
    (kafka.errors, our_kafka_errors),
    (aiokafka.errors, our_aiokafka_errors),
]


def classes_of(module: ModuleType) -> dict[str, Any]:
    """Return the errors that a module of an original has."""
    found = {name: kind for name, kind in vars(module).items() if inspect.isclass(kind) and name[0] != "_"}
    return {name: kind for name, kind in found.items() if issubclass(kind, Exception) or name == "KafkaError"}


@pytest.mark.parametrize(("original", "ours"), ROOMS, ids=[original.__name__ for original, _ in ROOMS])
def test_each_error_of_the_original_is_its_own_class(original: ModuleType, ours: ModuleType) -> None:
    theirs = classes_of(original)
    assert len(theirs) >= 4
    for name, kind in theirs.items():
        assert getattr(ours, name) is kind, name


async def begin_with(servers: str, **options: Any) -> None:
    """Start a producer of aiokafka's interface with a login."""
    await our_aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, security_protocol="SASL_PLAINTEXT", **options
    ).start()


def test_what_this_producer_raises_is_caught_by_the_originals_classes(servers: str) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        our_confluent.Producer({"bootstrap.servers": servers, "acks": "some"})
    assert isinstance(caught.value.args[0], confluent_kafka.KafkaError)
    with pytest.raises(kafka.errors.KafkaError):
        our_kafka_python.KafkaProducer(bootstrap_servers=servers, metric_reporters=[object])
    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(begin_with(servers, sasl_mechanism="X-NONE"))


def test_what_confluent_kafkas_clients_raise_is_caught_by_ours(servers: str, topic: str) -> None:
    consumer = our_confluent.Consumer({"bootstrap.servers": servers, "group.id": topic})
    with pytest.raises(our_confluent.KafkaException):
        consumer.commit(asynchronous=False)  # there is no offset yet
    consumer.close()
    admin = our_confluent.admin.AdminClient({"bootstrap.servers": servers})
    topics = [confluent_kafka.admin.NewTopic(topic, 1)]
    admin.create_topics(topics)[topic].result(10)
    with pytest.raises(our_confluent.KafkaException) as caught:
        admin.create_topics(topics)[topic].result(10)
    assert isinstance(caught.value.args[0], our_confluent.KafkaError)
    assert caught.value.args[0].code() == our_confluent.KafkaError.TOPIC_ALREADY_EXISTS


def test_what_kafka_pythons_clients_raise_is_caught_by_ours(servers: str, topic: str) -> None:
    admin = our_kafka_python.KafkaAdminClient(bootstrap_servers=servers)
    topics = [our_kafka_python.admin.NewTopic(topic, 1, 1)]
    admin.create_topics(topics)
    with pytest.raises(our_kafka_errors.KafkaError):
        admin.create_topics(topics)
    admin.close()


async def test_what_aiokafkas_consumer_raises_is_caught_by_ours(servers: str, topic: str) -> None:
    consumer = our_aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=None)
    await consumer.start()
    with pytest.raises(our_aiokafka_errors.IllegalOperation):
        await consumer.commit()  # without a group
    await consumer.stop()
    with pytest.raises(our_aiokafka_errors.ConsumerStoppedError):
        await consumer.getone()


def test_every_module_can_be_imported_where_no_original_is_installed() -> None:
    program = """
import sys
sys.modules.update(kafka=None, aiokafka=None, confluent_kafka=None)
from kafkaprod.compat.aiokafka.errors import ConsumerStoppedError, KafkaError
from kafkaprod.compat.confluent_kafka import KafkaError, KafkaException, Producer
from kafkaprod.compat.confluent_kafka.error import ValueSerializationError
from kafkaprod.compat.kafka_python.errors import KafkaTimeoutError, NoBrokersAvailable
assert KafkaError(KafkaError._TIMED_OUT).name() == "_TIMED_OUT"
try:
    Producer({"no.such.option": 1})
except KafkaException as error:
    assert error.args[0].code() == KafkaError._INVALID_ARG
else:
    raise AssertionError("no error")
try:
    from kafkaprod.compat.confluent_kafka import Consumer
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot import name 'Consumer'" in done.stdout
