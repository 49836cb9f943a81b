"""Tracing agents that start before install(): what is around the original's producer is around this engine's then."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
import wrapt

from kafkaprod.compat import install, uninstall
from kafkaprod.compat.agents import carried_over
from kafkaprod.compat.aiokafka import AIOKafkaProducer
from kafkaprod.compat.confluent_kafka import Producer
from kafkaprod.compat.kafka_python import KafkaProducer

Seen = list[tuple[str, tuple[Any, ...], dict[str, Any]]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def spy(seen: Seen) -> Callable[..., Any]:
    """A wrapper that notes a call, as those of agents open a span."""

    def wrapper(function: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append((function.__name__, args, kwargs))
        return function(*args, **kwargs)

    return wrapper


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    for client in ("aiokafka", "confluent_kafka", "kafka_python"):
        uninstall(client)


def sent_with(producer: Any) -> None:
    producer.produce("t", b"v", b"k")
    assert len(producer) == 1
    producer.purge()
    producer.poll(0)


class _Mixed:
    """As Datadog's: beside the producer in the bases."""

    servers = ""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        self.servers = config["bootstrap.servers"]


def test_a_subclass_in_place_of_the_original_is_one_of_this_engine_s(
    monkeypatch: pytest.MonkeyPatch, spy: Callable[..., Any], seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    class Agents(confluent_kafka.Producer):
        kept = "a value"

        def __init__(self, config: dict[str, Any], *, note: str = "made") -> None:
            super().__init__(config)
            self.note = note

        def produce(self, topic: str, value: Any = None, *args: Any, **kwargs: Any) -> None:
            """Send a record."""
            super().produce(topic, value, *args, **kwargs)

        @staticmethod
        def helped() -> int:
            return 7

    wrapt.wrap_function_wrapper(Agents, "produce", spy)
    monkeypatch.setattr(confluent_kafka, "Producer", Agents)
    with caplog.at_level(logging.WARNING):
        install("confluent_kafka")
    assert not any(__name__ in line for line in caplog.messages), "an agent's module has not come too early"
    made = confluent_kafka.Producer
    assert issubclass(made, Producer)
    assert not issubclass(made, Agents)
    producer: Any = made({"bootstrap.servers": "127.0.0.1:1"})
    assert (producer.note, producer.kept, producer.helped()) == ("made", "a value", 7)
    assert inspect.getdoc(made.produce) == "Send a record."
    sent_with(producer)
    assert seen == [("produce", ("t", b"v", b"k"), {})]
    uninstall("confluent_kafka")
    assert confluent_kafka.Producer is Agents


def test_wrapped_methods_that_the_subclass_inherits_are_this_engine_s(
    monkeypatch: pytest.MonkeyPatch, spy: Callable[..., Any], seen: Seen
) -> None:
    class Agents(_Mixed, confluent_kafka.Producer):
        pass

    wrapt.wrap_function_wrapper(Agents, "produce", spy)
    wrapt.wrap_function_wrapper(Agents, "produce", spy)  # two agents
    monkeypatch.setattr(confluent_kafka, "Producer", Agents)
    install("confluent_kafka")
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1"})
    assert producer.servers == "127.0.0.1:1"
    sent_with(producer)
    assert seen == [("produce", ("t", b"v", b"k"), {})] * 2


def test_a_subclass_of_the_same_name_is_not_taken_for_the_original(spy: Callable[..., Any]) -> None:
    theirs = type("Producer", (confluent_kafka.Producer,), {})
    wrapt.wrap_function_wrapper(theirs, "produce", spy)
    made = carried_over(theirs, "Producer", Producer)
    assert made.__mro__[1:] == Producer.__mro__


@pytest.mark.parametrize(
    ("package", "name", "client", "ours"),
    [
        (kafka, "KafkaProducer", "kafka_python", KafkaProducer),
        (aiokafka, "AIOKafkaProducer", "aiokafka", AIOKafkaProducer),
    ],
)
def test_wrapped_methods_of_the_original_itself_are_wrapped_here(
    package: Any, name: str, client: Any, ours: type, monkeypatch: pytest.MonkeyPatch, spy: Callable[..., Any]
) -> None:
    original = getattr(package, name)
    monkeypatch.setattr(original, "send", wrapt.FunctionWrapper(vars(original)["send"], spy))
    install(client)
    made = getattr(package, name)
    assert made.__bases__ == (ours,)
    assert vars(made)["send"].__wrapped__ is vars(ours)["send"]
    assert vars(made)["send"]._self_wrapper is spy
    assert not hasattr(ours.send, "_self_wrapper"), "the class of those who import it from here is as it was"  # type: ignore[attr-defined]
    uninstall(client)
    assert getattr(package, name) is original


def test_without_an_agent_the_class_is_this_engine_s_itself() -> None:
    install("kafka_python")
    assert kafka.KafkaProducer is KafkaProducer


def test_what_cannot_be_put_around_another_class_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Agents(confluent_kafka.Producer):
        __slots__ = ("span",)

    monkeypatch.setattr(confluent_kafka, "Producer", Agents)
    with caplog.at_level(logging.WARNING, "kafkaprod.compat"):
        install("confluent_kafka")
    assert confluent_kafka.Producer is Producer
    assert any("test_agents.Agents" in line and "__slots__" in line for line in caplog.messages)
