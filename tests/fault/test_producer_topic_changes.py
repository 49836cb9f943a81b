"""Topics that are deleted and made anew, vanish for a while, or move, on scripted brokers."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pytest

from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from tests.fault.producer_load import of_ledgers, send_one, wait_for_callbacks
from tests.fault.record_checker import SendLedger, check_records
from tests.fault.scripted_broker import ScriptedCluster
from tests.fault.scripted_load import checked, producer_of
from tests.kafka.cluster import wait_until

UNKNOWN_TOPIC_ID = 100


def has_requests(cluster: ScriptedCluster, count: int) -> bool:
    return len(cluster.requests) >= count


@pytest.mark.parametrize("partitions", [1, 2, 4, 6])
def test_records_sent_after_a_topic_was_made_anew_use_its_partitions(partitions: int) -> None:
    with ScriptedCluster({"t": 4}) as cluster, producer_of(cluster) as producer:
        old = SendLedger()
        for number in range(40):
            assert send_one(producer, old, "t", key=bytes([number])).exception(20) is None
        cluster.make_anew("t", partitions)
        # What was put into a partition that is gone may fail; it tells the producer about the new topic.
        while send_one(producer, SendLedger(), "t", key=b"").exception(20) is not None:
            pass
        new = SendLedger()
        for number in range(200):
            key = None if number % 2 else bytes([number])
            assert send_one(producer, new, "t", key=key).exception(20) is None
        wait_for_callbacks(new)
        report = check_records([new], of_ledgers(cast(Any, cluster.logs()), [new]))
        assert report.is_ok, str(report)
        assert len([log for log in cluster.logs()["t"].values() if log]) == partitions


def test_records_of_partitions_that_are_gone_fail_and_the_rest_goes_on() -> None:
    """Queued for partition 3 of 4 while the topic is made anew with two: they fail at once, saying why."""
    with ScriptedCluster({"t": 4}) as cluster, producer_of(cluster) as producer:
        ledger = SendLedger()
        for partition in range(4):
            assert send_one(producer, ledger, "t", partition).exception(20) is None
        cluster.make_anew("t", 2)
        futures = [send_one(producer, SendLedger(), "t", partition) for partition in range(4)]
        assert [future.exception(20) is None for future in futures] == [True, True, False, False]
        error = futures[3].exception(0)
        assert isinstance(error, BrokerError)
        assert "t[3]" in str(error)


def test_answer_of_the_old_topic_is_matched_after_the_new_one_is_known() -> None:
    """Request and reply are keyed by the same topic id, whatever metadata says meanwhile (KAFKA-19397)."""
    with ScriptedCluster({"t": 1, "u": 1}) as cluster, producer_of(cluster, metadata_max_age_ms=50) as producer:
        ledger = SendLedger()
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        cluster.hold(0)
        waiting = send_one(producer, ledger, "t", 0)
        cluster.wait_for_batches(2)
        asked = sum(api is ApiKey.METADATA for _, _, api in cluster.requests)
        old_logs = cluster.make_anew("t", 1)
        # Metadata is asked on the same connection; its answer waits for the held one, so let that go first.
        cluster.release(0)
        assert waiting.result(20).offset == 1
        assert [record.offset for record in old_logs[0]] == [0, 1]
        wait_until(lambda: sum(a is ApiKey.METADATA for _, _, a in cluster.requests) > asked + 1, 20, "metadata")
        assert send_one(producer, SendLedger(), "t", 0).exception(20) is None


def test_topic_that_vanishes_for_a_while_keeps_its_sequences() -> None:
    """Restarting at sequence 0 would make the broker take new records for old ones."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, metadata_max_age_ms=20) as producer:
        ledger = SendLedger()
        for _ in range(5):
            for _ in range(7):
                assert send_one(producer, ledger, "t", 0).exception(20) is None
            with cluster.lock:
                cluster.hidden_topics.add("t")
            asked = len(cluster.requests)
            wait_until(partial(has_requests, cluster, asked + 2), 20, "metadata without the topic")
            future = send_one(producer, ledger, "t", 0)
            with cluster.lock:
                cluster.hidden_topics.clear()
            assert future.exception(20) is None
        assert {attempt.producer[1] for attempt in cluster.produced} == {0}
        assert checked(cluster, ledger).acknowledged == 40


@pytest.mark.parametrize("is_hinted", [True, False])
def test_leader_that_moves_is_followed(is_hinted: bool) -> None:
    """A hint (KIP-951) makes the retry go to the new leader without waiting for metadata."""
    with ScriptedCluster({"t": 1}, nodes=2) as cluster:
        backoff = 30_000 if is_hinted else 5
        with producer_of(
            cluster, retry_backoff_ms=backoff, retry_backoff_max_ms=backoff, request_timeout_ms=20_000
        ) as producer:
            ledger = SendLedger()
            for number in range(20):
                assert send_one(producer, ledger, "t", 0).exception(15) is None
                leader = cluster.topics["t"].partitions[0].leader
                cluster.move_leader("t", 0, 1 - leader)
                if is_hinted:
                    cluster.refuse(ApiKey.PRODUCE, 6, node=leader, hint=(1 - leader, number + 1))
            assert checked(cluster, ledger).acknowledged == 20


def test_leader_epoch_that_goes_back_is_not_believed() -> None:
    """A broker that lags behind names the old leader; nothing is sent there any more."""
    with ScriptedCluster({"t": 1}, nodes=2) as cluster, producer_of(cluster, metadata_max_age_ms=20) as producer:
        ledger = SendLedger()
        cluster.move_leader("t", 0, 1)
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        with cluster.lock:
            model = cluster.topics["t"].partitions[0]
            cluster.metadata_leaders["t", 0] = 0
            cluster.metadata_epochs["t", 0] = model.leader_epoch - 1
        asked = len(cluster.requests)
        wait_until(lambda: len(cluster.requests) >= asked + 3, 20, "stale metadata")
        for _ in range(10):
            assert send_one(producer, ledger, "t", 0).exception(20) is None
        assert {attempt.node for attempt in cluster.produced if attempt.code == 0} == {1}
        assert not [attempt for attempt in cluster.produced if attempt.code == 6]
        checked(cluster, ledger)
