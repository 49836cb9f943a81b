"""Results of batches and the handles to single records, as the core makes them; waiting is in results.batch."""

import pytest

from kafkaprod._core.queues.completion import BatchResult, DeliveryFuture
from kafkaprod._core.requests.split import split_batch
from kafkaprod.results.batch import BatchCompletion
from kafkaprod.structs import RecordMetadata
from tests.support.core.core_engine import TIMESTAMP, TOPIC, Engine, only_ref, succeed

ERROR = ValueError("refused")


def test_new_result_knows_only_where_it_belongs():
    result = BatchResult("t", 3)
    assert (result.topic, result.partition, result.record_count) == ("t", 3, 0)
    assert (result.is_done, result.is_split, result.error, result.base_offset) == (False, False, None, -1)
    assert result.error_of(0) is None


def test_result_is_read_only():
    with pytest.raises(AttributeError):
        BatchResult("t", 3).base_offset = 7


def test_pending_future_says_so():
    engine = Engine()
    future = engine.append(b"v")
    assert (future.topic, future.partition) == (TOPIC, 0)
    assert (future.done(), future.succeeded(), future.failed()) == (False, False, False)
    assert "pending" in repr(future)
    with pytest.raises(TimeoutError, match=r"no outcome for a record of orders\[0\] within 0 s"):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0)


def test_delivered_future_has_metadata():
    engine = Engine()
    future = engine.append(b"value", key=b"key")
    succeed(engine.take(), 12)
    assert future.get(0) == RecordMetadata(TOPIC, 0, 12, TIMESTAMP, 3, 5)
    assert (future.done(), future.succeeded(), future.failed(), future.exception(0)) == (True, True, False, None)
    assert "offset 12" in repr(future)


def test_null_key_and_value_have_size_minus_one():
    engine = Engine()
    future = engine.append(None)
    succeed(engine.take())
    assert future.result(0)[4:] == (-1, -1)


def test_failed_future_raises_its_own_error():
    engine = Engine()
    future = engine.append(b"v")
    request = engine.take()
    only_ref(request).fail(ERROR)
    request.finish()
    with pytest.raises(ValueError, match="refused"):
        future.result(0)
    assert repr(future.exception(0)) == repr(ERROR)
    assert "failed: ValueError('refused')" in repr(future)


def test_futures_cannot_be_subclassed():
    with pytest.raises(TypeError):
        type("Mine", (DeliveryFuture,), {})


def test_result_of_a_split_batch_is_done_with_its_last_child():
    engine = Engine()
    engine.append(b"a")
    engine.append(b"b")
    request = engine.take()
    split_batch(only_ref(request), 1)
    request.finish()
    parent = engine.results[0]
    assert (parent.is_split, parent.is_done) == (True, False)
    assert [first for first, _ in parent.children] == [0, 1]
    first, second = engine.take_all()
    succeed(first)
    assert not parent.is_done
    succeed(second)
    assert parent.is_done


def test_callbacks_come_once_with_metadata_or_error():
    calls = []
    for outcome in ("succeed", "fail"):
        engine = Engine(make_result=BatchCompletion)
        future = engine.append(b"v")
        chained = future.add_callback(lambda tag, m: calls.append((tag, m.offset)), "ok").add_errback(
            lambda tag, e: calls.append((tag, e)), "bad"
        )
        assert chained is future
        request = engine.take()
        ref = only_ref(request)
        _ = ref.succeed(9) if outcome == "succeed" else ref.fail(ERROR)
        request.finish()
    assert repr(calls) == repr([("ok", 9), ("bad", ERROR)])


def test_callback_added_late_is_called_at_once():
    engine = Engine(make_result=BatchCompletion)
    future = engine.append(b"v")
    succeed(engine.take(), 4)
    seen = []
    future.add_done_callback(lambda done: seen.append(done.result(0).offset))
    assert seen == [4]


def test_callback_follows_its_record_through_a_split():
    engine = Engine(make_result=BatchCompletion)
    futures = [engine.append(b"%d" % i) for i in range(2)]
    seen = []
    for future in futures:
        future.add_done_callback(lambda done: seen.append(done.result(0).offset))
    request = engine.take()
    split_batch(only_ref(request), 1)
    request.finish()
    assert seen == []
    for offset, part in zip([10, 20], engine.take_all(), strict=True):
        succeed(part, offset)
    assert seen == [10, 20]
