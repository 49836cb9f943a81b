"""Subscriptions to client metrics and what clients push: the rules of Kafka's ClientMetricsManager."""

from __future__ import annotations

import time
import uuid

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.settings.client_metrics import (
    MAX_BYTES,
    MAX_SUBSCRIPTIONS,
    ClientMetrics,
    Push,
    check_match,
)
from kafkaprod.broker.settings.settings import METRICS_OPTIONS
from kafkaprod.compression import make_codec
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.broker.settings_in_memory import SettingsInMemory

HOST = "127.0.0.1"


@pytest.fixture
def settings() -> SettingsInMemory:
    settings = SettingsInMemory()
    settings.put(METRICS_OPTIONS, {"all": {"metrics": "a.,b.", "interval.ms": "1000"}})
    return settings


@pytest.fixture
def metrics(settings: SettingsInMemory) -> ClientMetrics:
    return ClientMetrics(settings)


def push_code(metrics: ClientMetrics, push: Push, number: int, now_ms: int, codec_id: int = 0) -> ErrorCode | int:
    try:
        metrics.take_push(push, number, codec_id, HOST, now_ms)
    except RequestRefusedError as error:
        return error.code
    return 0


def test_matching_subscriptions_are_united(settings: SettingsInMemory, metrics: ClientMetrics) -> None:
    settings.put(
        METRICS_OPTIONS,
        {
            "one": {"metrics": "a.", "interval.ms": "1000", "match": "client_id=x.*,client_source_address=127.*"},
            "two": {"metrics": "b.,a.", "interval.ms": "500", "match": "client_id=xyz"},
            "other": {"metrics": "c.", "interval.ms": "100", "match": "client_id=y.*"},
            "default interval": {"metrics": "d."},
        },
    )
    _, subscription = metrics.subscribe(None, "xyz", HOST, 0)
    assert (subscription.prefixes, subscription.interval_ms) == (["a.", "b.", "d."], 500)
    _, subscription = metrics.subscribe(None, "xy", HOST, 0)
    assert (subscription.prefixes, subscription.interval_ms) == (["a.", "d."], 1000)


def test_no_pattern_and_no_client_id_stops_the_broker(settings: SettingsInMemory, metrics: ClientMetrics) -> None:
    """Python's own expressions would try for ages."""
    settings.put(METRICS_OPTIONS, {"slow": {"metrics": "a.", "match": "client_id=(a+)+"}})
    assert metrics.subscribe(None, "a" * 250, HOST, 0)[1].prefixes == ["a."]
    assert metrics.subscribe(None, "a" * 250 + "b", HOST, 0)[1].prefixes == []
    assert metrics.subscribe(None, "a" * 30_000, HOST, 0)[1].prefixes == []
    settings.put(METRICS_OPTIONS, {"of an older version": {"metrics": "a.", "match": r"client_id=(?=a).*"}})
    assert metrics.subscribe(None, "a", HOST, 0)[1].prefixes == []


def test_a_client_keeps_its_id_and_must_not_ask_too_often(metrics: ClientMetrics) -> None:
    instance_id, subscription = metrics.subscribe(None, "x", HOST, 0)
    with pytest.raises(RequestRefusedError) as caught:
        metrics.subscribe(instance_id, "x", HOST, 999)
    assert caught.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert metrics.subscribe(instance_id, "x", HOST, 1000) == (instance_id, subscription)


def test_pushes_are_kept_and_checked(settings: SettingsInMemory, metrics: ClientMetrics) -> None:
    instance_id, subscription = metrics.subscribe(None, "x", HOST, 0)
    codec = make_codec("zstd")
    assert codec is not None
    push = Push("x", instance_id, False, codec.compress([b"otlp"]))
    assert push_code(metrics, push, subscription.number, 10, 4) == 0
    assert push_code(metrics, push, subscription.number, 20, 4) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (
        push_code(metrics, push._replace(metrics=b"damaged"), subscription.number, 1010, 4) == ErrorCode.INVALID_RECORD
    )
    large = push._replace(metrics=bytes(MAX_BYTES + 1))
    assert push_code(metrics, large, subscription.number, 2010) == ErrorCode.TELEMETRY_TOO_LARGE
    assert push_code(metrics, push, subscription.number, 2010, 9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    settings.put(METRICS_OPTIONS, {"all": {"metrics": "c.", "interval.ms": "1000"}})
    assert push_code(metrics, push, subscription.number, 2010, 4) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, changed = metrics.subscribe(instance_id, "x", HOST, 2011)  # at once: it has to
    last = Push("x", instance_id, True, b"plain")
    assert push_code(metrics, last, changed.number, 2012) == 0
    assert push_code(metrics, last, changed.number, 2013) == ErrorCode.INVALID_REQUEST
    assert metrics.take_all() == [push._replace(metrics=b"otlp"), last]
    assert metrics.take_all() == []


def test_a_client_unknown_here_is_served(metrics: ClientMetrics) -> None:
    """It asked another broker."""
    _, subscription = metrics.subscribe(None, "x", HOST, 0)
    assert push_code(metrics, Push("x", uuid.uuid4(), False, b""), subscription.number, 0) == 0


@pytest.mark.parametrize("match", ["client_software_name=java", "client_id=(", r"client_id=(a)\1", "nothing"])
def test_a_bad_match_is_refused(match: str) -> None:
    with pytest.raises(ConfigError, match="match="):
        check_match(match)


def test_many_dear_subscriptions_do_not_hold_up_a_client_that_asks(
    settings: SettingsInMemory, metrics: ClientMetrics
) -> None:
    """The dearest pattern that is taken, for each of as many subscriptions as there may be."""
    match = "client_id=(a|b)*a(a|b){1000}"
    check_match(match)
    settings.put(METRICS_OPTIONS, {str(each): {"metrics": "a.", "match": match} for each in range(MAX_SUBSCRIPTIONS)})
    client_id = "ab" * 120
    metrics.subscribe(None, client_id, HOST, 0)  # compiles them
    began_s = time.thread_time()
    metrics.subscribe(None, client_id, HOST, 0)
    assert time.thread_time() - began_s < 0.5


def test_a_pattern_that_is_large_when_compiled_is_refused() -> None:
    with pytest.raises(ConfigError, match="match="):
        check_match("client_id=(a|b)*a((a|b|cc){50}){10}")
