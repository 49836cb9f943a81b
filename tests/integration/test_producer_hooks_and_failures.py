"""Hooks on every way in, and failures that nobody looked at, against an embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.errors import DeliveryFailedError, InvalidRecordError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.reading import read_all

LIMIT_S = 20.0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 4, "v": 1}) as broker:
        yield broker


def refuse(broker: EmbeddedBroker) -> None:
    broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)


class OnSend:
    def on_send(self, record: Any) -> Any:
        return record


class Listener:
    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        pass


@pytest.mark.parametrize("interceptor", [OnSend(), Listener()], ids=["on_send", "on_acknowledgement"])
def test_interceptors_do_not_hide_failures(broker: EmbeddedBroker, interceptor: Any) -> None:
    refuse(broker)
    with pytest.raises(DeliveryFailedError) as raised:  # noqa: SIM117
        with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[interceptor]) as producer:
            producer.send("v", b"x")
    assert raised.value.failed_count == 1


def _look_at_future(producer: Producer) -> int:
    futures = [producer.send("v", b"x", partition=0) for _ in range(100)]
    assert futures[3].exception(LIMIT_S) is not None
    assert futures[3].exception(LIMIT_S) is not None  # a second look counts once
    return 99


def _look_at_block(producer: Producer) -> int:
    one = producer.send_many("v", [b"x"] * 60, partition=0)
    producer.send_many("v", [b"x"] * 40, partition=0)
    one.wait(LIMIT_S)
    assert len(one.errors) == 60
    return 40


def _look_at_first_error_of_block(producer: Producer) -> int:
    one = producer.send_many("v", [b"x"] * 60, partition=0)
    producer.send("v", b"x", partition=0)
    one.wait(LIMIT_S)
    assert one.first_error() is not None
    return 1


def _look_at_all(producer: Producer) -> int:
    for future in [producer.send("v", b"x", partition=0) for _ in range(100)]:
        assert future.exception(LIMIT_S) is not None
    return 0


@pytest.mark.parametrize("look", [_look_at_future, _look_at_block, _look_at_first_error_of_block, _look_at_all])
def test_failures_that_nobody_looked_at_are_raised(broker: EmbeddedBroker, look: Callable[[Producer], int]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=200) as producer:
        producer.send("v", b"first").result(LIMIT_S)
        refuse(broker)
        unseen = look(producer)
        if not unseen:
            producer.flush()
            return
        with pytest.raises(DeliveryFailedError) as raised:
            producer.flush()
        assert raised.value.failed_count == unseen


class AlwaysOne:
    def partition(self, *_: Any) -> int:
        return 1


class ManyOne(AlwaysOne):
    def partition_many(self, topic: str, keys: Any, values: Any, count: int, available: Any) -> Any:
        assert [len(values), None if keys is None else len(keys)] == [3, None if keys is None else 3]
        assert list(values) == [b"a", b"b", b"c"]
        assert values[-1] == b"c"
        assert values[1:] == [b"b", b"c"]
        return np.ones(len(values), np.int64)


class OutOfRange(AlwaysOne):
    def partition(self, *_: Any) -> int:
        return 7


SENDS: dict[str, Callable[[Producer], Any]] = {
    "columns": lambda p: p.send_columns("t", (np.arange(4), b"abc"), (np.arange(4), b"123")),
    "columns without keys": lambda p: p.send_columns("t", (np.arange(4), b"abc")),
    "many": lambda p: p.send_many("t", [b"a", b"b", b"c"], [b"1", b"2", None]),
    "many with -1": lambda p: p.send_many("t", [b"a", b"b", b"c"], partitions=[-1, -1, -1]),
    "table": lambda p: p.send_table("t", {"value": [b"a", b"b", b"c"]}),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS.keys())
@pytest.mark.parametrize("partitioner", [AlwaysOne(), ManyOne()], ids=["partition", "partition_many"])
def test_partitioner_decides_for_blocks(broker: EmbeddedBroker, partitioner: Any, send: Any) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, partitioner=partitioner) as producer:
        assert send(producer).result(LIMIT_S).partitions.tolist() == [1, 1, 1]


def test_partitioner_decides_only_where_no_partition_is_given(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, partitioner=AlwaysOne()) as producer:
        assert producer.send_many("t", [b"v"] * 3, partitions=[-1, 0, -1]).partitions.tolist() == [1, 0, 1]
        assert producer.send_columns("t", (np.arange(4), b"abc"), partitions=[3, 2, 0]).partitions.tolist() == [3, 2, 0]
        assert producer.send_columns("t", (np.arange(4), b"abc"), partition=2).partitions.tolist() == [2, 2, 2]
        assert producer.send_columns("t", None, row_count=2).partitions.tolist() == [1, 1]


def test_round_robin_takes_turns_in_blocks(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, partitioner="round_robin") as producer:
        assert producer.send_columns("t", (np.arange(9), b"abcdefgh")).partitions.tolist() == [0, 1, 2, 3] * 2


def test_wrong_choice_for_a_block_is_refused(broker: EmbeddedBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, partitioner=OutOfRange()) as producer,
        pytest.raises(InvalidRecordError, match="chose partition 7 of topic 't'"),
    ):
        producer.send_columns("t", (np.arange(4), b"abc"))


class Notes:
    """A serializer that keeps the headers it sees, and appends one."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def serialize(self, topic: str, headers: Any, data: Any) -> Any:
        self.seen.append(list(headers))
        headers.append(("by", b"serializer"))
        return data


def test_serializers_see_the_headers_of_their_own_row_and_may_append(broker: EmbeddedBroker) -> None:
    notes = Notes()
    mine = [("h", b"0")]
    with Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=notes) as producer:
        producer.send("v", b"a")
        producer.send("v", b"b", headers=mine)
        producer.send("v", b"c", headers={"h": b"3"})
        producer.send_many("v", [b"d", b"e"], headers=[[("h", b"1")], None])
        producer.send_many("v", [b"f", b"g"], headers=[("h", b"2")])
    assert mine == [("h", b"0")]
    own: list[Any] = [[], [("h", b"0")], [("h", b"3")], [("h", b"1")], [], [("h", b"2")], [("h", b"2")]]
    assert notes.seen == own
    (records,) = read_all(broker.bootstrap_servers, "v").values()
    assert [list(record.headers) for record in records] == [[*headers, ("by", b"serializer")] for headers in own]


def test_single_object_in_place_of_values_is_refused(broker: EmbeddedBroker) -> None:
    settings: list[dict[str, Any]] = [{}, {"value_serializer": str.encode}]
    for options in settings:
        with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            for values in (b"abc", "abc"):
                with pytest.raises(InvalidRecordError, match="values must be a list with one item per record"):
                    producer.send_many("v", values)
