import logging
from typing import Any

import pytest

from kafkaprod.hooks.interceptors import InterceptorChain, ProducerRecord
from kafkaprod.structs import RecordMetadata

RECORD = ProducerRecord("orders", b"v")
METADATA = RecordMetadata("orders", 3, 7, 1000)


class Appending:
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.seen: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.text)

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.seen.append((metadata, error))


class Failing:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("broken")

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        raise RuntimeError("broken")


class Forgetful:
    def on_send(self, record: ProducerRecord) -> None:
        pass


def test_each_interceptor_sees_what_the_one_before_made() -> None:
    chain = InterceptorChain([Appending(b"1"), Appending(b"2")])
    assert chain.on_send(RECORD) == RECORD._replace(value=b"v12")


@pytest.mark.parametrize("broken", [Failing(), Forgetful()])
def test_failing_interceptor_is_passed_over_and_counted(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    chain = InterceptorChain([Appending(b"1"), broken, Appending(b"2")])
    assert chain.on_send(RECORD).value == b"v12"
    assert chain.failure_count == 1
    assert f"{type(broken).__qualname__}.on_send failed" in caplog.text


def test_failing_acknowledgement_does_not_keep_it_from_the_others() -> None:
    last = Appending(b"")
    chain = InterceptorChain([Failing(), last])
    chain.on_acknowledgement(METADATA)
    error = TimeoutError()
    chain.on_acknowledgement(METADATA, error)
    assert last.seen == [(METADATA, None), (METADATA, error)]
    assert chain.failure_count == 2


def test_refused_record_is_acknowledged_with_its_error() -> None:
    watcher = Appending(b"")
    chain = InterceptorChain([watcher])
    error = ValueError()
    chain.on_refused("orders", None, error)
    chain.on_refused("orders", 4, error)
    assert [(m.partition, m.offset, e) for m, e in watcher.seen] == [(-1, -1, error), (4, -1, error)]


def test_log_of_a_broken_interceptor_does_not_flood(caplog: pytest.LogCaptureFixture) -> None:
    chain = InterceptorChain([Failing()])
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            chain.on_send(RECORD)
    assert chain.failure_count == 1000
    assert len(caplog.records) == 10


def test_interceptor_may_have_one_method_only() -> None:
    class Watching:
        def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
            pass

    chain = InterceptorChain([Watching(), Forgetful()])
    chain.on_acknowledgement(METADATA)
    assert chain.failure_count == 0
    assert chain


def test_empty_chain_is_false_and_changes_nothing() -> None:
    chain = InterceptorChain([])
    assert not chain
    assert chain.on_send(RECORD) is RECORD


def test_interrupt_passes_through() -> None:
    class Interrupted:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InterceptorChain([Interrupted()]).on_send(RECORD)
