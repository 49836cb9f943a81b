"""What delivery callbacks get, beside confluent-kafka's own: of its class, with the same answers."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka
import pytest

from kafkaprod.compat import confluent_kafka as compat
from kafkaprod.compat.confluent_kafka import message as messages

METHODS = ("topic", "partition", "offset", "key", "value", "timestamp", "leader_epoch", "__len__")
Report = tuple[Any, Any]
RECORDS: list[dict[str, Any]] = [
    {"key": b"k", "value": b"v"},
    {"value": b"", "partition": 1},
    {"key": "text", "value": None},
]


def report_of(producer: Any, topic: str, record: dict[str, Any]) -> Report:
    """Produce a record; return its report."""
    reports: list[Report] = []
    producer.produce(topic, **record, on_delivery=lambda *report: reports.append(report))
    assert producer.flush(20) == 0
    (report,) = reports
    return report


def answers(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name)() for name in METHODS} | {"truth": bool(message)}


@pytest.mark.parametrize("record", RECORDS)
def test_a_failed_record_has_the_message_that_it_has_there(record: dict[str, Any]) -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 50, "log_level": 0}
    reports = [report_of(module.Producer(options), "t", record) for module in (confluent_kafka, compat)]
    (error, theirs), (our_error, ours) = reports
    assert our_error.code() == error.code() == theirs.error().code() == ours.error().code()
    assert answers(ours) == answers(theirs)
    assert type(ours) is type(theirs) is confluent_kafka.Message


@pytest.mark.parametrize("record", RECORDS)
def test_a_delivered_record_has_it_too(servers: str, topic: str, record: dict[str, Any]) -> None:
    record = {**record, "partition": 1, "timestamp": 1_700_000_000_000}
    options = {"bootstrap.servers": servers}
    reports = [report_of(module.Producer(options), topic, record) for module in (confluent_kafka, compat)]
    (_, theirs), (_, ours) = reports
    assert ours.offset() == theirs.offset() + 1
    assert answers(ours) | {"offset": 0} == answers(theirs) | {"offset": 0}
    assert 0 < ours.latency() < 20
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_where_the_original_is_missing_or_takes_no_fields_the_answers_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Early:
        """Message of a version that only its own code can make."""

        def __init__(self) -> None:
            self.fields = ()

    stand_in = type("Message", (), {})
    monkeypatch.setattr(confluent_kafka, "Message", Early)
    assert messages._known(stand_in) is stand_in
    monkeypatch.undo()
    assert messages._known(stand_in) is confluent_kafka.Message
    for fields in (("t", -1, -1001, b"k", b"v", None, None, (0, -1), 0.5), ("t", 3, 7, None, b"", [("h", b"1")])):
        assert answers(messages.OwnMessage(*fields)) == answers(confluent_kafka.Message(*fields))
