"""Requests of transactions: what each is answered with, and what readers see then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from kafkaprod.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkaprod.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkaprod.structs import TopicPartition
from tests.support.broker.broker_requests import TOPIC, commit, produce, produce_request
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.transaction_requests import (
    TV1,
    TV1_OLDEST,
    TV2,
    TransactionalClient,
    Versions,
    committed_offset,
    end_offset,
    read,
    stable_offset,
)

CHECK_MS = 100
CONFIG = TransactionConfig(timeout_check_ms=CHECK_MS)
EVERY_PROTOCOL = pytest.mark.parametrize("versions", [TV1_OLDEST, TV1, TV2], ids=["oldest", "TV1", "TV2"])


@pytest.fixture
def box(tmp_path: Path) -> Iterator[BrokerWithoutSockets]:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2}, transactions=CONFIG)
    yield box
    box.broker.close()


def client_of(box: BrokerWithoutSockets, versions: Versions = TV2) -> TransactionalClient:
    client = TransactionalClient(box, versions)
    assert client.init() == 0
    return client


def let_time_out(box: BrokerWithoutSockets, ms: int = 60_000) -> None:
    box.advance(ms)
    box.advance(CHECK_MS)
    box.advance(CHECK_MS)


def test_an_id_that_is_too_long_begins_nothing(box: BrokerWithoutSockets) -> None:
    assert TransactionalClient(box, transactional_id="x" * 1024).init() == 0
    assert TransactionalClient(box, transactional_id="x" * 1025).init() == ErrorCode.INVALID_REQUEST


@EVERY_PROTOCOL
def test_offsets_of_a_group_whose_id_is_too_long_are_refused(box: BrokerWithoutSockets, versions: Versions) -> None:
    client = client_of(box, versions)
    assert client.commit_offset(5, group="g" * 1025) == ErrorCode.INVALID_GROUP_ID


# -- visibility --------------------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
def test_committed_records_are_read_and_aborted_ones_are_not(box: BrokerWithoutSockets, versions: Versions) -> None:
    client = client_of(box, versions)
    for number in range(4):
        assert client.send(b"%d" % number) == 0
        assert client.send(b"%d" % number, partition=1) == 0
        assert client.end(is_commit=number % 2 == 0) == 0
    assert read(box, 0) == read(box, 1) == [b"0", b"2"]
    assert read(box, 0, is_committed=False) == [b"0", b"1", b"2", b"3"]
    assert end_offset(box, is_committed=True) == end_offset(box) == 8


@EVERY_PROTOCOL
def test_open_transaction_holds_back_the_last_stable_offset(box: BrokerWithoutSockets, versions: Versions) -> None:
    client = client_of(box, versions)
    produce(box, make_batch([b"plain"]))
    client.send(b"open")
    produce(box, make_batch([b"behind it"]))
    assert (end_offset(box, is_committed=True), end_offset(box)) == (1, 3)
    assert read(box) == [b"plain"]
    client.commit()
    assert read(box) == [b"plain", b"open", b"behind it"]


@EVERY_PROTOCOL
def test_timeout_aborts_the_transaction_and_fences_its_producer(box: BrokerWithoutSockets, versions: Versions) -> None:
    client = client_of(box, versions)
    client.send(b"slow")
    box.advance(59_000)
    assert end_offset(box, is_committed=True) == 0
    let_time_out(box, 1_001)
    assert end_offset(box, is_committed=True) == end_offset(box) == 2
    assert read(box) == []
    fenced = {TV1_OLDEST: 47, TV1: 90, TV2: 48}[versions]
    assert client.commit() == fenced
    if versions is TV2:
        assert client.abort() == 0
        assert (client.send(b"next"), client.commit()) == (0, 0)
        assert read(box) == [b"next"]


def test_timed_out_producer_cannot_write_any_more(box: BrokerWithoutSockets) -> None:
    client = client_of(box)
    client.send(b"slow")
    let_time_out(box)
    assert client.produce(b"late") == 47
    assert client.produce(b"late", partition=1, sequence=0) == 47
    assert client.commit_offset(1) == 47


# -- producing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "expected"), [(3, 48), (10, 48), (11, 120), (12, 0), (13, 0)], ids=lambda value: str(value)
)
def test_partition_that_was_not_added(box: BrokerWithoutSockets, version: int, expected: int) -> None:
    client = client_of(box, TV1._replace(produce=min(version, 12)))
    assert client.produce(b"x") == expected


@pytest.mark.parametrize("version", [10, 11, 12])
def test_producer_the_coordinator_does_not_know(box: BrokerWithoutSockets, version: int) -> None:
    client = client_of(box, TV1._replace(produce=version))
    client.epoch -= 1
    assert client.produce(b"x") == 47
    client.epoch, client.producer_id = 0, 77
    assert client.produce(b"x") == 49
    client.transactional_id = "unknown"
    assert client.produce(b"x") == 49


def test_transactional_batch_needs_the_id(box: BrokerWithoutSockets) -> None:
    batch = make_batch(producer_id=1, epoch=0, sequence=0, is_transactional=True)
    assert produce(box, batch, 12).error_code == 53


def test_new_producer_starts_at_sequence_0_in_tv2(box: BrokerWithoutSockets) -> None:
    assert client_of(box).produce(b"x", sequence=3) == 45


def test_repeated_batch_is_answered_after_the_transaction(box: BrokerWithoutSockets) -> None:
    client = client_of(box, TV1)
    client.send(b"once")
    assert client.commit() == 0
    assert client.produce(b"once", sequence=0) == 0
    assert read(box) == [b"once"]


@EVERY_PROTOCOL
def test_batch_that_a_marker_overtakes_opens_no_transaction(box: BrokerWithoutSockets, versions: Versions) -> None:
    """The coordinator has agreed; before the batch is in the log the transaction ends."""
    client = client_of(box, versions)
    client.send(b"first", partition=1)
    if not versions.is_tv2:
        client.add(0)
    run_control = box.broker.run_control
    late: list[Callable[[], None]] = []

    def hold_back(work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        work()
        assert then is not None
        late.append(then)

    box.broker.run_control = hold_back
    zombie = TransactionalClient(box, versions)
    zombie.producer_id, zombie.epoch = client.producer_id, client.epoch
    batch = make_batch([b"late"], producer_id=zombie.producer_id, epoch=zombie.epoch, sequence=0, is_transactional=True)
    answers = box.begin(produce_request(batch, transaction="tx"), versions.produce)
    box.broker.run_control = run_control
    assert client.abort() == 0
    for then in late:
        then()
    (answer,) = answers
    assert answer.responses[0].partition_responses[0].error_code == (47 if versions.is_tv2 else 48)  # type: ignore[union-attr]
    assert end_offset(box, is_committed=True) == end_offset(box)


# -- ids and epochs ----------------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
def test_second_producer_fences_the_first(box: BrokerWithoutSockets, versions: Versions) -> None:
    first = client_of(box, versions)
    first.send(b"of the first")
    second = TransactionalClient(box, versions)
    assert second.init() == 51
    assert second.init() == 0
    assert first.commit() in (90, 47)
    assert first.send(b"zombie") in (90, 47)
    assert second.send(b"of the second") == 0
    assert second.commit() == 0
    assert read(box) == [b"of the second"]


@pytest.mark.parametrize(("version", "expected"), [(3, 47), (4, 90), (5, 90)])
def test_fenced_producer_cannot_init_with_its_epoch(box: BrokerWithoutSockets, version: int, expected: int) -> None:
    first, second = client_of(box), TransactionalClient(box)
    second.init()
    second.init()
    assert first.init(bumps=True, version=version) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"transactional_id": ""}, 42),
        ({"transaction_timeout_ms": 0}, 50),
        ({"transaction_timeout_ms": 900_001}, 50),
        ({"producer_id": 4}, 42),
        ({"producer_epoch": 4}, 42),
    ],
)
def test_init_that_makes_no_sense(box: BrokerWithoutSockets, change: dict[str, object], expected: int) -> None:
    request = InitProducerIdRequest(**{"transactional_id": "tx", "transaction_timeout_ms": 1000, **change})  # type: ignore[arg-type]
    assert box.ask(request, InitProducerIdResponse, 4).error_code == expected


def test_expired_id_is_unknown_and_begins_again(box: BrokerWithoutSockets) -> None:
    client = client_of(box)
    client.send(b"x")
    client.commit()
    producer_id = client.producer_id
    wall_ms = box.clock.wall_ms()
    box.broker.transactions.expire_ids(wall_ms + CONFIG.id_expiration_ms - 1)
    assert box.broker.transactions.states.keys() == {"tx"}
    box.broker.transactions.expire_ids(wall_ms + CONFIG.id_expiration_ms)
    assert box.broker.transactions.states == {}
    assert client.send(b"y") == 49
    assert client.init() == 0
    assert (client.producer_id > producer_id, client.epoch) == (True, 0)


def test_all_partitions_are_added_or_none(box: BrokerWithoutSockets) -> None:
    client = client_of(box, TV1)
    assert client.add(0, 7, 1) == [55, 3, 55]
    assert client.produce(b"x") == 120
    assert client.add(0, 1) == [0, 0]


def test_brokers_verify_and_add_many_transactions_in_one_request(box: BrokerWithoutSockets) -> None:
    client = client_of(box)

    def ask(*, verify_only: bool, transactional_id: str = "tx") -> list[int]:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        (answer,) = box.ask(request, AddPartitionsToTxnResponse, 5).results_by_transaction
        assert answer.transactional_id == transactional_id
        return [result.partition_error_code for result in answer.topic_results[0].results_by_partition]

    assert ask(verify_only=True) == [120, 120]
    assert ask(verify_only=False) == [0, 0]
    assert ask(verify_only=True) == [0, 0]
    assert ask(verify_only=True, transactional_id="other") == [49, 49]
    assert ask(verify_only=True, transactional_id="") == [42, 42]


def test_level_0_cannot_keep_transactions_of_version_2(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1}, transactions=TransactionConfig(version=0))
    client = client_of(box)
    assert (client.produce(b"x"), client.commit()) == (35, 35)
    client.versions = TV1
    assert (client.send(b"x"), client.commit()) == (0, 0)
    assert read(box) == [b"x"]
    box.broker.close()


@pytest.mark.parametrize(("level", "finalized"), [(0, []), (1, [(1, 1)]), (2, [(2, 2)])])
def test_api_versions_names_the_level(tmp_path: Path, level: int, finalized: list[tuple[int, int]]) -> None:
    box = BrokerWithoutSockets(tmp_path, transactions=TransactionConfig(version=level))
    request = ApiVersionsRequest(client_software_name="kafkaprod", client_software_version="1")
    for version, supported in ((3, []), (4, [(0, 2)])):
        answer = box.ask(request, ApiVersionsResponse, version)
        features = [key for key in answer.supported_features if key.name == "transaction.version"]
        assert [(key.min_version, key.max_version) for key in features] == supported
        levels = [key for key in answer.finalized_features if key.name == "transaction.version"]
        assert [(key.min_version_level, key.max_version_level) for key in levels] == finalized
        assert answer.finalized_features_epoch == box.broker.image.end_offset - 1
    box.broker.close()


def test_a_level_that_changes_with_a_restart_has_a_higher_epoch(tmp_path: Path) -> None:
    """Clients keep the levels of the highest epoch that they have seen."""
    epochs = []
    request = ApiVersionsRequest(client_software_name="kafkaprod", client_software_version="1")
    for level in (2, 1, 2):
        box = BrokerWithoutSockets(tmp_path, transactions=TransactionConfig(version=level))
        epochs.append(box.ask(request, ApiVersionsResponse, 4).finalized_features_epoch)
        box.broker.close()
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    ("version", "key_type", "key", "expected"),
    [(1, 1, "tx", 0), (4, 1, "tx", 0), (6, 1, "tx", 0), (1, 1, "", 42), (4, 1, "", 42), (6, 2, "s", 42), (6, 0, "", 0)],
)
def test_coordinator_of_an_id(box: BrokerWithoutSockets, version: int, key_type: int, key: str, expected: int) -> None:
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = [key]
        (answer,) = box.ask(request, FindCoordinatorResponse, version).coordinators
        assert (answer.key, answer.error_code, answer.node_id) == (key, expected, -1 if expected else 0)
    else:
        request.key = key
        assert box.ask(request, FindCoordinatorResponse, version).error_code == expected


# -- offsets -----------------------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
def test_offsets_are_pending_until_the_marker(box: BrokerWithoutSockets, versions: Versions) -> None:
    client = client_of(box, versions)
    assert client.send_offset(5) == 0
    assert (committed_offset(box), stable_offset(box)) == (-1, (-1, 88))
    assert client.commit() == 0
    assert (committed_offset(box), stable_offset(box)) == (5, (5, 0))
    assert client.send_offset(9) == 0
    assert (committed_offset(box), stable_offset(box)) == (5, (-1, 88))
    assert client.abort() == 0
    assert (committed_offset(box), stable_offset(box)) == (5, (5, 0))


@EVERY_PROTOCOL
def test_offsets_that_a_marker_overtakes_begin_no_transaction(
    box: BrokerWithoutSockets, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has agreed; before the offsets are in the log the transaction ends."""
    client = client_of(box, versions)
    assert (client.send_offset(1), client.commit()) == (0, 0)
    client.send(b"first")
    if not versions.is_tv2:
        client.add_offsets()
    join = box.broker.standing.join_transaction
    late: list[Callable[[], None]] = []

    def hold_back(name: str, producer: Any, keys: Any, then: Callable[[Any], None], **options: Any) -> None:
        join(name, producer, keys, lambda errors: late.append(lambda: then(errors)), **options)

    monkeypatch.setattr(box.broker.standing, "join_transaction", hold_back)
    answers = box.begin(client.offset_request(5), versions.offset_commit)
    monkeypatch.undo()
    assert client.abort() == 0
    assert len(late) == 1
    late[0]()
    (answer,) = answers
    assert answer.topics[0].partitions[0].error_code == (47 if versions.is_tv2 else 48)  # type: ignore[union-attr]
    assert stable_offset(box) == (1, 0)
    assert (client.send_offset(7), client.commit()) == (0, 0)
    assert stable_offset(box) == (7, 0)


def test_later_commit_outside_the_transaction_wins(box: BrokerWithoutSockets) -> None:
    client = client_of(box)
    client.send_offset(5)
    commit(box, 7)
    client.commit()
    assert committed_offset(box) == 7
    commit(box, 1)
    client.send_offset(3)
    client.commit()
    assert committed_offset(box) == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"group": ""}, 24),
        ({"topic": "unknown"}, 3),
        ({"partition": 9}, 3),
        ({"metadata": "x" * 4097}, 12),
        ({"metadata": None}, 0),
        ({"metadata": "x" * 4096, "times": 256}, 0),
        ({"metadata": "x" * 4096, "times": 257}, 28),
        ({"generation": 0}, 22),
    ],
)
def test_offset_that_cannot_be_kept(box: BrokerWithoutSockets, change: dict[str, object], expected: int) -> None:
    client = client_of(box)
    assert client.commit_offset(1, **change) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "expected"), [(3, 48), (4, 120), (5, 0)])
def test_offsets_of_a_group_that_was_not_added(box: BrokerWithoutSockets, version: int, expected: int) -> None:
    client = client_of(box, TV1._replace(offset_commit=version))
    assert client.commit_offset(1) == expected


def test_group_with_pending_offsets_is_kept(box: BrokerWithoutSockets) -> None:
    client_of(box).send_offset(5)
    table = box.broker.offsets.table
    assert table.has_group("g")
    assert table.group_ids() == ["g"]
    assert table.expired((), 0, 2**50, 1) == []


# -- admin requests ----------------------------------------------------------------------------------------------------


def describe_producers(box: BrokerWithoutSockets, partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[partition])])
    return box.ask(request, DescribeProducersResponse, 0).topics[0].partitions[0]


def test_describe_producers_shows_open_transactions(box: BrokerWithoutSockets) -> None:
    client = client_of(box)
    produce(box, make_batch([b"plain"]))
    client.send(b"a", b"b")
    (producer,) = describe_producers(box).active_producers
    assert (producer.producer_id, producer.producer_epoch) == (client.producer_id, 0)
    assert (producer.last_sequence, producer.coordinator_epoch, producer.current_txn_start_offset) == (1, -1, 1)
    client.commit()
    (producer,) = describe_producers(box).active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (1, -1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (0, -1)
    assert describe_producers(box, 9).error_code == 3


def test_describe_transactions_shows_states(box: BrokerWithoutSockets) -> None:
    client = client_of(box)
    client.send(b"x", partition=1)
    client.send(b"x")
    request = DescribeTransactionsRequest(transactional_ids=["tx", "unknown", ""])
    known, unknown, empty = box.ask(request, DescribeTransactionsResponse, 0).transaction_states
    assert (unknown.error_code, empty.error_code) == (105, 42)
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert known.transaction_start_time_ms == box.clock.wall_ms()
    assert (known.producer_id, known.producer_epoch) == (client.producer_id, client.epoch)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [(TOPIC, [0, 1])]


@pytest.mark.parametrize(
    ("filters", "expected", "unknown"),
    [
        ({}, ["idle", "open"], []),
        ({"state_filters": ["Ongoing"]}, ["open"], []),
        ({"state_filters": ["Ongoing", "Nonsense"]}, ["open"], ["Nonsense"]),
        ({"state_filters": ["Nonsense"]}, [], ["Nonsense"]),
        ({"producer_id_filters": [1]}, ["open"], []),
        ({"producer_id_filters": [1], "state_filters": ["Empty"]}, [], []),
        ({"duration_filter": 999}, ["idle", "open"], []),
        ({"duration_filter": 1_000}, ["idle"], []),
        ({"transactional_id_pattern": ""}, ["idle", "open"], []),
        ({"transactional_id_pattern": ".*e.*"}, ["idle", "open"], []),
        ({"transactional_id_pattern": "i\\D+|nothing"}, ["idle"], []),
        ({"transactional_id_pattern": "pen"}, [], []),
        ({"transactional_id_pattern": "o.*", "duration_filter": 1_000}, [], []),
    ],
)
def test_list_transactions_filters(
    box: BrokerWithoutSockets, filters: dict[str, object], expected: list[str], unknown: list[str]
) -> None:
    TransactionalClient(box, transactional_id="idle").init()
    client = TransactionalClient(box, transactional_id="open")
    client.init()
    client.send(b"x")
    box.advance(1_000)
    answer = box.ask(ListTransactionsRequest(**filters), ListTransactionsResponse, 2)  # type: ignore[arg-type]
    assert [state.transactional_id for state in answer.transaction_states] == expected
    assert (answer.error_code, answer.unknown_state_filters) == (0, unknown)


def test_patterns_of_ids_take_any_character_and_are_refused_if_they_are_wrong(box: BrokerWithoutSockets) -> None:
    for name in ("a b:1", "ä/2", "(a+)+" + "a" * 40):
        TransactionalClient(box, transactional_id=name).init()

    def found(pattern: str) -> tuple[int, list[str]]:
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        answer = box.ask(request, ListTransactionsResponse, 2)
        return answer.error_code, [state.transactional_id for state in answer.transaction_states]

    assert found(r"a\sb[:;]\d") == (0, ["a b:1"])
    assert found("[^a]/2") == (0, ["ä/2"])
    assert found("([(a+)]+)+b") == (0, [])  # in no time
    assert found("[") == (128, [])
    assert found(r"(a)\1") == (128, [])


def test_marker_of_an_administrator_ends_a_hanging_transaction(box: BrokerWithoutSockets) -> None:
    partition = box.broker.topics.partition(TOPIC, 0)
    assert partition is not None
    partition.log.append(
        memoryview(make_batch([b"hangs"], producer_id=9, epoch=3, sequence=0, is_transactional=True)), 0
    )
    assert end_offset(box, is_committed=True) == 0

    def abort(epoch: int, *partitions: int) -> list[int]:
        topics = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=list(partitions))]
        marker = WritableTxnMarker(producer_id=9, producer_epoch=epoch, topics=topics)
        answer = box.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, 1).markers[0]
        assert answer.producer_id == 9
        return [result.error_code for result in answer.topics[0].partitions]

    assert abort(2, 0, 5) == [47, 3]
    assert abort(3, 0) == [0]
    assert read(box) == []
    assert end_offset(box, is_committed=True) == end_offset(box) == 2


# -- restarts ----------------------------------------------------------------------------------------------------------


def restart(box: BrokerWithoutSockets, tmp_path: Path) -> BrokerWithoutSockets:
    box.broker.close()
    again = BrokerWithoutSockets(tmp_path, transactions=CONFIG)
    again.clock.advance(box.clock.now_ms())
    return again


@EVERY_PROTOCOL
def test_restart_keeps_open_transactions_and_pending_offsets(
    box: BrokerWithoutSockets, versions: Versions, tmp_path: Path
) -> None:
    client = client_of(box, versions)
    client.send(b"before")
    client.send_offset(5)
    client.box = again = restart(box, tmp_path)
    assert read(again) == []
    assert stable_offset(again) == (-1, 88)
    assert client.send(b"after") == 0
    assert client.commit() == 0
    assert read(again) == [b"before", b"after"]
    assert stable_offset(again) == (5, 0)
    again.broker.close()


def test_restart_writes_the_markers_of_decided_transactions(box: BrokerWithoutSockets, tmp_path: Path) -> None:
    client = client_of(box)
    client.send(b"decided")
    client.send_offset(5)
    box.broker.run_control = lambda work, then=None: None  # the broker dies before it writes a marker
    assert client.commit() == 0
    assert (read(box), committed_offset(box)) == ([], -1)
    client.box = again = restart(box, tmp_path)
    assert (read(again), stable_offset(again)) == ([b"decided"], (5, 0))
    assert (client.send(b"next"), client.commit()) == (0, 0)
    assert read(again) == [b"decided", b"next"]
    again.broker.close()


@pytest.mark.parametrize("is_commit", [True, False])
def test_restart_ends_what_lost_its_marker(box: BrokerWithoutSockets, is_commit: bool, tmp_path: Path) -> None:
    """A power cut can keep the state of the id and lose the marker, if nothing was synced in between."""
    client = client_of(box)
    client.send(b"unmarked")
    box.broker.markers.write = lambda marker, partitions: {}  # type: ignore[method-assign]
    assert client.end(is_commit) == 0
    client.send(b"later", partition=1)  # the id has moved on to its next transaction
    client.box = again = restart(box, tmp_path)
    assert read(again) == ([b"unmarked"] if is_commit else [])
    assert end_offset(again, is_committed=True) == end_offset(again)
    assert client.commit() == 0
    assert read(again, 1) == [b"later"]
    again.broker.close()


def test_restart_aborts_what_no_id_knows_of(box: BrokerWithoutSockets, tmp_path: Path) -> None:
    client = client_of(box)
    client.send(b"unknown")
    log = box.broker.topics.partition("__transaction_state", 0)
    assert log is not None
    log.log.truncate_to(0)
    again = restart(box, tmp_path)
    assert again.broker.transactions.states == {}
    assert read(again) == []
    assert end_offset(again, is_committed=True) == end_offset(again)
    again.broker.close()


def test_transaction_of_before_the_restart_still_times_out(box: BrokerWithoutSockets, tmp_path: Path) -> None:
    client_of(box).send(b"slow")
    again = restart(box, tmp_path)
    again.broker.transactions.next_deadline_ms(again.clock.now_ms())
    let_time_out(again)
    assert end_offset(again, is_committed=True) == end_offset(again)
    again.broker.close()


def test_internal_topics_are_made_when_they_are_needed(box: BrokerWithoutSockets) -> None:
    assert [topic.name for topic in box.broker.topics.all()] == [TOPIC]
    client = client_of(box)
    assert [topic.name for topic in box.broker.topics.all()] == ["__transaction_state", TOPIC]
    client.send_offset(1)
    topics = {topic.name: topic for topic in box.broker.topics.all()}
    assert topics.keys() == {"__transaction_state", "__consumer_offsets", TOPIC}
    assert topics["__transaction_state"].is_internal
    assert topics["__transaction_state"].properties["cleanup.policy"] == "compact"
    assert box.broker.topics.partition(*TopicPartition("__transaction_state", 0)) is not None


# -- failing disks -----------------------------------------------------------------------------------------------------


class FailingDisk:
    """Lets appends to one internal or data log fail, by patching what writes to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.is_failing = False
        for name in ("append_internal", "append_marker"):
            append = getattr(PartitionLog, name)

            def fail(log: PartitionLog, *arguments: Any, append: Callable[..., Any] = append) -> Any:
                if self.is_failing and log.topic_partition.topic == topic:
                    raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
                return append(log, *arguments)

            monkeypatch.setattr(PartitionLog, name, fail)


@EVERY_PROTOCOL
def test_failed_write_of_a_state_changes_nothing(
    box: BrokerWithoutSockets, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk(monkeypatch, "__transaction_state")
    client = client_of(box, versions)
    disk.is_failing = True
    assert client.send(b"x") == (19 if versions.is_tv2 else 15)
    assert client.send_offset(1) == 15
    disk.is_failing = False
    assert client.send(b"y") == 0
    disk.is_failing = True
    assert client.commit() == 15
    assert TransactionalClient(box, versions, "other").init() == 15
    disk.is_failing = False
    assert client.commit() == 0
    assert read(box) == [b"y"]


@pytest.mark.parametrize("level", [1, 2])
def test_fence_that_cannot_be_written_is_written_later(
    tmp_path: Path, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk(monkeypatch, "__transaction_state")
    config = TransactionConfig(version=level, timeout_check_ms=CHECK_MS)
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1}, transactions=config)
    client = client_of(box, TV2 if level == 2 else TV1)
    client.send(b"slow")
    disk.is_failing = True
    successor = TransactionalClient(box, client.versions)
    assert successor.init() == 51
    let_time_out(box)
    assert end_offset(box, is_committed=True) == 0
    if level == 1:
        assert client.commit() == 90  # fenced in memory already
    disk.is_failing = False
    let_time_out(box)
    assert end_offset(box, is_committed=True) == end_offset(box) == 2
    assert successor.init() == 0
    assert read(box) == []
    box.broker.close()


@EVERY_PROTOCOL
def test_marker_that_cannot_be_written_is_written_later(
    box: BrokerWithoutSockets, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk(monkeypatch, TOPIC)
    client = client_of(box, versions)
    client.send(b"x")
    disk.is_failing = True
    assert client.commit() == 0
    assert read(box) == []
    assert client.send(b"next", partition=1) == 51
    assert TransactionalClient(box, versions).init() == 51
    disk.is_failing = False
    let_time_out(box)
    assert read(box) == [b"x"]
    assert (client.send(b"next"), client.commit()) == (0, 0)
    assert read(box) == [b"x", b"next"]


def test_topic_deleted_within_a_transaction_does_not_keep_it_open(box: BrokerWithoutSockets) -> None:
    client = client_of(box)
    box.own_topics.create("gone", 1, {})
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=client.producer_id,
        v3_and_below_producer_epoch=client.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="gone", partitions=[0])],
    )
    box.ask(request, AddPartitionsToTxnResponse, 3)
    client.send(b"x")
    box.own_topics.delete("gone")
    assert client.commit() == 0
    assert (client.send(b"y"), client.commit()) == (0, 0)
    assert read(box) == [b"x", b"y"]
