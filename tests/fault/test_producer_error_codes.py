"""Every error code on Produce, Metadata and InitProducerId: the outcome of the table, and nothing false is said."""

from __future__ import annotations

import pytest

from kafkaprod import Producer
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode, describe
from tests.fault.producer_load import send_one, send_stamped
from tests.fault.record_checker import SendLedger
from tests.fault.scripted_broker import ScriptedCluster
from tests.fault.scripted_load import checked, producer_of

CODES = sorted(int(code) for code in ErrorCode if code != 0)
# Retriable or not, these have rules of their own.
SPLITS, OUT_OF_ORDER, DUPLICATE, INVALID_EPOCH, UNKNOWN_PRODUCER = 10, 45, 46, 47, 59


def expected_of_produce(code: int, *, idempotent: bool) -> bool:
    """Whether a single record succeeds after its batch was refused once with the code."""
    if code == DUPLICATE:
        return True
    if idempotent and code in (OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER):
        return True  # a new epoch
    return describe(code).retriable


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("code", [*CODES, 999])
def test_produce_refused_once(code: int, idempotent: bool) -> None:
    """One record refused, others before and after it on the same and another partition delivered."""
    with ScriptedCluster({"t": 2}) as cluster, producer_of(cluster, enable_idempotence=idempotent) as producer:
        ledger = SendLedger()
        first = send_one(producer, ledger, "t", 0)
        assert first.result(20).offset == 0
        cluster.refuse(ApiKey.PRODUCE, code, partition=0, is_written=code == DUPLICATE)
        doubtful = send_one(producer, ledger, "t", 0)
        other = send_one(producer, ledger, "t", 1)
        error = doubtful.exception(20)
        assert (error is None) == expected_of_produce(code, idempotent=idempotent), error
        if error is not None:
            assert isinstance(error, KafkaError)
            assert getattr(error, "code", error.context.get("code")) == code
            assert "t[0]" in str(error)
        if code == DUPLICATE:
            assert doubtful.result(0).offset == -1
        assert other.result(20).offset == 0
        later = send_one(producer, ledger, "t", 0)
        assert later.result(20).offset == (1 if error is not None else 2)
        checked(cluster, ledger)


@pytest.mark.parametrize("code", [code for code in CODES if describe(code).retriable])
def test_produce_refused_many_times_is_retried_in_order(code: int) -> None:
    with ScriptedCluster({"t": 2}) as cluster, producer_of(cluster, batch_size=500) as producer:
        ledger = SendLedger()
        cluster.refuse(ApiKey.PRODUCE, code, times=20)
        for number in range(200):
            send_stamped(producer, ledger, "t", number % 2)
        producer.flush(30)
        assert checked(cluster, ledger).acknowledged == 200


@pytest.mark.parametrize("code", [7, 20, 6, 56, -1])
def test_refused_after_the_append_is_not_written_twice(code: int) -> None:
    """The broker wrote the batch and says otherwise: the retry is recognized by its sequence."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, batch_size=500) as producer:
        ledger = SendLedger()
        cluster.refuse(ApiKey.PRODUCE, code, times=6, is_written=True)
        for _ in range(200):
            send_stamped(producer, ledger, "t", 0)
        producer.flush(30)
        assert (checked(cluster, ledger).failed > 0) == (not describe(code).retriable)


@pytest.mark.parametrize("code", [*CODES, 999])
def test_init_producer_id_refused_once(code: int) -> None:
    """A retriable code is asked again; another one fails what waits, and later records get another try."""
    with ScriptedCluster({"t": 1}) as cluster:
        refusal = cluster.refuse(ApiKey.INIT_PRODUCER_ID, code)
        with producer_of(cluster) as producer:
            check_refused_producer_id(cluster, producer, code)
        assert refusal.count == 1


def check_refused_producer_id(cluster: ScriptedCluster, producer: Producer, code: int) -> None:
    ledger = SendLedger()
    first = send_one(producer, ledger, "t", 0)
    error = first.exception(20)
    if describe(code).retriable:
        assert error is None
    elif error is not None:
        assert getattr(error, "code", getattr(error, "context", {}).get("code")) == code
    later = send_one(producer, ledger, "t", 0)
    assert later.exception(20) is None
    checked(cluster, ledger)


@pytest.mark.parametrize("code", [*CODES, 999])
def test_metadata_of_a_new_topic_refused_once(code: int) -> None:
    with ScriptedCluster({"t": 1, "u": 1}) as cluster, producer_of(cluster, max_block_ms=20_000) as producer:
        ledger = SendLedger()
        before = send_one(producer, ledger, "u", 0)
        assert before.exception(20) is None
        cluster.refuse(ApiKey.METADATA, code)
        if describe(code).retriable:
            assert send_one(producer, ledger, "t", 0).exception(20) is None
        else:
            assert send_stamped(producer, ledger, "t", 0) is None, "send() must raise"
        for topic in ("t", "u"):
            later = send_one(producer, ledger, topic, 0)
            assert later.exception(20) is None
        checked(cluster, ledger)


@pytest.mark.parametrize("code", [*CODES, 999])
def test_metadata_of_a_known_topic_refused_once(code: int) -> None:
    """What is known goes on being used; what was in the queue is delivered."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, metadata_max_age_ms=50) as producer:
        ledger = SendLedger()
        before = send_one(producer, ledger, "t", 0)
        assert before.exception(20) is None
        refusal = cluster.refuse(ApiKey.METADATA, code)
        while not refusal.count:
            future = send_one(producer, ledger, "t", 0)
            assert future.exception(20) is None
        for _ in range(3):
            later = send_one(producer, ledger, "t", 0)
            assert later.exception(20) is None
        checked(cluster, ledger)
