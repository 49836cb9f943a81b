"""`topic_options`: what is read, which entry counts for a topic, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.config import ProducerConfig, merge_options, options_for_topic
from kafkaprod.config.topic_options import TopicOptions
from kafkaprod.errors import ConfigError

MANY = {
    "orders": {"linger_ms": 1},
    "orders-*": {"linger_ms": 2},
    "orders-eu-*": {"linger_ms": 3},
    "*": {"linger_ms": 4},
}


def config(topic_options: object, **more: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"bootstrap_servers": "h:1"}, topic_options=topic_options, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic", "linger_ms"),
    [("orders", 1), ("orders-", 2), ("orders-us", 2), ("orders-eu-1", 3), ("order", 4), ("orders-eu", 2), ("x", 4)],
)
def test_name_counts_before_beginnings_and_longer_ones_before_shorter(topic: str, linger_ms: int) -> None:
    for entries in (MANY, dict(reversed(MANY.items()))):
        assert config(entries).topic_options.find(topic) == {"linger_ms": linger_ms}


def test_entry_without_options_shields_a_topic_from_shorter_beginnings() -> None:
    found = config({"logs-*": {"linger_ms": 50}, "logs-urgent": {}}).topic_options
    assert found.find("logs-a") == {"linger_ms": 50}
    assert found.find("logs-urgent") == {}


def test_topic_that_no_entry_names_has_nothing() -> None:
    assert config({"orders": {"linger_ms": 1}}).topic_options.find("order") == {}
    assert ProducerConfig.from_options(bootstrap_servers="h:1").topic_options == TopicOptions()


def test_options_have_all_their_spellings_and_values_may_be_text() -> None:
    spelled = {"batch.size": "1000", "queue.buffering.max.ms": "7", "compression.codec": "ZSTD"}
    expected = {"batch_size": 1000, "linger_ms": 7, "compression_type": "zstd"}
    assert config({"orders": spelled}).topic_options.find("orders") == expected


def test_text_is_a_json_object(tmp_path: Path) -> None:
    text = '{"orders": {"linger.ms": 0, "compression_type": "lz4"}, "logs-*": {}}'
    path = tmp_path / "producer.properties"
    path.write_text(f"bootstrap.servers=h:1\ntopic.options={text}\n", encoding="utf-8")
    expected = config({"orders": {"linger_ms": 0, "compression_type": "lz4"}, "logs-*": {}})
    assert config(text).topic_options == ProducerConfig.from_file(path).topic_options == expected.topic_options


def test_configuration_with_them_is_hashed_shown_and_read_again() -> None:
    given = config(MANY, client_id="c")
    assert hash(given) == hash(config(dict(reversed(MANY.items())), client_id="c"))
    assert "topic_options={'orders': {'linger_ms': 1}, 'orders-eu-*': {'linger_ms': 3}" in repr(given)
    assert ProducerConfig.from_options(given, linger_ms=9).topic_options == given.topic_options


def test_later_layer_replaces_the_whole() -> None:
    merged = merge_options({"topic_options": MANY}, {"topic.options": '{"a": {"linger_ms": 5}}'})
    assert merged["topic_options"].find("orders") == {}
    assert merged["topic_options"].find("a") == {"linger_ms": 5}


def test_producer_of_one_topic_has_its_options_as_those_of_all() -> None:
    options = {
        "linger.ms": 7,
        "max_batch_size": 900_000,
        "topic_options": {"orders": {"batch_size": 1000, "linger_ms": 1}},
    }
    assert options_for_topic(options, "orders") == {"linger_ms": 1, "batch_size": 1000}
    assert options_for_topic(options, "logs") == {"linger_ms": 7, "max_batch_size": 900_000}
    smaller = {"batch_size": 5000, "topic_options": {"orders": {"max_batch_size": 1000}}}
    assert options_for_topic(smaller, "orders") == {"batch_size": 1000, "max_batch_size": 1000}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"orders": {"acks": 1}}, "topic 'orders': 'acks' cannot differ by topic; expected"),
        (
            {"orders": {"batch_size": -1}},
            "topic 'orders': batch_size=-1 is not allowed: expected a whole number in 0..",
        ),
        ({"orders": {"linger.ms": "soon"}}, "topic 'orders': linger.ms='soon' is not allowed"),
        (
            {"orders": {"compression_type": "br"}},
            "'orders': compression_type='br' is not allowed: expected one of none",
        ),
        ({"orders": {"linger.ms": 1, "linger_ms": 1}}, "topic 'orders': linger_ms is given twice"),
        ({"orders": {5: 1}}, "topic 'orders': <int> cannot differ by topic"),
        ({"orders": 5}, "topic 'orders' has no mapping of options, but <int>"),
        ({"": {}}, "'' is not the name of a topic"),
        ({5: {}}, "<int> is not the name of a topic"),
        ({"\ud800": {}}, "is not the name of a topic"),
        ({"or*s": {}}, "'or*s' has a * that is not its last character"),
        ({"or**": {}}, "'or**' has a * that is not its last character"),
        ("{", "the text is no JSON"),
        ("[" * 100_000, "the text is no JSON"),
        ('{"a": {}, "a": {}}', "'a' is given twice"),
        ('{"a": {"linger_ms": 1, "linger_ms": 2}}', "'linger_ms' is given twice"),
        ("[1]", "topic_options='[1]' is not allowed: expected a mapping"),
        (5, "topic_options=5 is not allowed: expected a mapping"),
        (None, "topic_options=None is not allowed: expected a mapping"),
    ],
)
def test_what_is_wrong_is_named(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        config(given)


@pytest.mark.parametrize(
    ("own", "options", "said"),
    [
        ({"batch_size": 70_000}, {"buffer_memory": 65_536}, "batch_size=70000 exceeds buffer_memory=65536"),
        ({"batch_size": 10, "max_batch_size": 9}, {}, "max_batch_size=9 is below batch_size=10"),
        (
            {"linger_ms": 900},
            {"delivery_timeout_ms": 1000, "request_timeout_ms": 200},
            "delivery_timeout_ms=1000 is below linger_ms + request_timeout_ms = 900 + 200",
        ),
    ],
)
def test_rules_between_options_hold_for_topics(own: dict[str, int], options: dict[str, int], said: str) -> None:
    if "buffer_memory" in options:
        options = options | {"batch_size": 1000, "max_request_size": 1000}
    with pytest.raises(ConfigError, match=re.escape(f"topic_options of 'logs-*': {said}")):
        config({"logs-*": own}, **options)
    assert config({"logs-*": {}}, **options)


def test_defaults_that_depend_on_others_follow_topics() -> None:
    assert config({"a": {"linger_ms": 150_000}}).delivery_timeout_ms == 180_000
    assert config({"a": {"linger_ms": 1}}).delivery_timeout_ms == 120_000


def test_largest_timeouts_are_in_no_conflict() -> None:
    most = 2**31 - 1
    assert config({"a": {"linger_ms": 5}}, request_timeout_ms=most, delivery_timeout_ms=most)


def test_a_misspelt_option_of_a_topic_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"'lingerms' cannot differ by topic; did you mean linger_ms\?"):
        ProducerConfig.from_options(bootstrap_servers="h:1", topic_options={"orders": {"lingerms": 5}})
