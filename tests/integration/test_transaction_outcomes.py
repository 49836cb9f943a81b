"""Every error of a transaction call says what is certain about the transaction, from threads and from asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import drop_reply, reply_with
from kafkaprod.errors import CommitOutcome, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode

TOPIC = "t"
FUTURE = 999
COMMIT_CODES = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not committed",
    ErrorCode.PRODUCER_FENCED: "not committed",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "not committed",
    ErrorCode.INVALID_TXN_STATE: "not committed",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "unknown",
    ErrorCode.TRANSACTION_ABORTABLE: "unknown",
    FUTURE: "unknown",
}


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={TOPIC: 1}, transaction_version=request.param) as broker:
        yield broker


@pytest.fixture(autouse=True)
def clear(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    broker.faults.clear()


class Calls:
    """The calls of a producer, blocking or awaited."""

    def __init__(self, broker: EmbeddedBroker, kind: type[Any], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        options |= {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "x", "retry_backoff_ms": 10}
        self._producer: Any = self._run(self._make(kind, options)) if kind is AsyncProducer else kind(**options)

    async def _make(self, kind: type[Any], options: dict[str, Any]) -> Any:
        producer = kind(**options)
        await producer.start()
        return producer

    def _run(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(awaitable)

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        result = getattr(self._producer, name)(*arguments, **options)
        return self._run(result) if asyncio.iscoroutine(result) else result

    def fail(self, name: str, *arguments: Any, **options: Any) -> KafkaError:
        """Make a call, which must fail; return its error."""
        with pytest.raises(KafkaError) as raised:
            self.do(name, *arguments, **options)
        assert raised.value.outcome in (None, *get_args(CommitOutcome))
        return raised.value

    def open(self) -> None:
        self.do("init_transactions")
        self.do("begin_transaction")
        self.do("send", TOPIC, b"v")
        self.do("flush")

    def block(self) -> None:
        """`with producer.transaction()`, in either kind."""
        if isinstance(self._producer, Producer):
            with self._producer.transaction():
                self._producer.send(TOPIC, b"v")
            return

        async def body() -> None:
            async with self._producer.transaction():
                await self._producer.send(TOPIC, b"v")

        self._run(body())

    def close(self) -> None:
        self.do("close", 1)
        self._loop.close()


@pytest.fixture(params=[Producer, AsyncProducer])
def calls(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[Calls]:
    calls = Calls(broker, request.param)
    yield calls
    broker.faults.clear()
    calls.close()


@pytest.mark.parametrize("code", COMMIT_CODES)
def test_refused_commit(broker: EmbeddedBroker, calls: Calls, code: int) -> None:
    calls.open()
    broker.faults.on(ApiKey.END_TXN, reply_with(code))
    error = calls.fail("commit_transaction")
    assert error.outcome == COMMIT_CODES[code]
    for name in ("begin_transaction", "commit_transaction"):
        assert calls.fail(name).outcome == error.outcome
    broker.faults.clear()
    if error.category != "abortable":
        assert calls.fail("abort_transaction").outcome == error.outcome


@pytest.mark.parametrize("first", [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("code", COMMIT_CODES)
def test_refused_commit_after_a_doubtful_one(broker: EmbeddedBroker, calls: Calls, first: int, code: int) -> None:
    calls.open()
    broker.faults.on(ApiKey.END_TXN, reply_with(first), times=1)
    broker.faults.on(ApiKey.END_TXN, reply_with(code))
    assert calls.fail("commit_transaction").outcome == "unknown"


def test_calls_without_a_transaction_have_none(calls: Calls) -> None:
    for name in ("commit_transaction", "abort_transaction", "begin_transaction"):
        assert calls.fail(name).outcome is None
    calls.do("init_transactions")
    for name in ("init_transactions", "commit_transaction", "abort_transaction"):
        assert calls.fail(name).outcome is None


def test_init_that_is_refused_has_none(broker: EmbeddedBroker, calls: Calls) -> None:
    broker.faults.on(ApiKey.INIT_PRODUCER_ID, reply_with(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert calls.fail("init_transactions").outcome is None


def test_what_was_not_sent_to_be_committed_is_not_committed(broker: EmbeddedBroker, calls: Calls) -> None:
    calls.open()
    assert calls.fail("begin_transaction").outcome == "not committed"
    assert calls.fail("commit_transaction", timeout=float("nan")).outcome == "not committed"
    broker.faults.on(ApiKey.TXN_OFFSET_COMMIT, reply_with(ErrorCode.ILLEGAL_GENERATION))
    assert calls.fail("send_offsets_to_transaction", {(TOPIC, 0): 1}, "g").outcome == "not committed"
    assert calls.fail("commit_transaction").outcome == "not committed"


def test_failed_record_is_not_committed(broker: EmbeddedBroker, calls: Calls) -> None:
    calls.do("init_transactions")
    calls.do("begin_transaction")
    broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.INVALID_RECORD))
    calls.do("send", TOPIC, b"v")
    assert calls.fail("commit_transaction").outcome == "not committed"


@pytest.mark.parametrize(
    ("name", "outcome"), [("commit_transaction", "unknown"), ("abort_transaction", "not committed")]
)
def test_call_that_times_out(broker: EmbeddedBroker, calls: Calls, name: str, outcome: str) -> None:
    calls.open()
    broker.faults.on(ApiKey.END_TXN, drop_reply())
    assert calls.fail(name, timeout=0.3).outcome == outcome
    assert calls.fail("begin_transaction").outcome == outcome
    calls.do("close", 0)
    assert calls.fail(name).outcome in (outcome, None)


def test_block_that_aborts_settles_the_doubt(broker: EmbeddedBroker, calls: Calls) -> None:
    calls.do("init_transactions")
    broker.faults.on(ApiKey.END_TXN, reply_with(ErrorCode.TRANSACTION_ABORTABLE), times=1)
    with pytest.raises(KafkaError) as raised:
        calls.block()
    assert raised.value.outcome == "not committed"
    assert "the abort that followed succeeded" in raised.value.__notes__[0]
