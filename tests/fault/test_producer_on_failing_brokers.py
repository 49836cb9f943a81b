"""The producer on three real brokers that are killed, restarted, frozen; on topics that vanish and grow."""

import os
import random
import time
from functools import partial

import pytest

from tests.fault.producer_load import Load, of_ledgers, rounds
from tests.fault.record_checker import check_records
from tests.kafka.cluster import KafkaCluster, wait_until

pytestmark = pytest.mark.external

PARTITIONS = 6


def is_past(end_s: float) -> bool:
    return time.monotonic() >= end_s


def wait_until_in_sync(kafka3: KafkaCluster, topic: str) -> None:
    """Every replica of the topic is in sync again, so that one more broker may go."""
    admin = kafka3.admin()

    def in_sync() -> bool:
        known = admin.list_topics(timeout=10).topics.get(topic)
        return known is not None and all(
            len(each.isrs) == len(each.replicas) and each.leader in kafka3.running_nodes()
            for each in known.partitions.values()
        )

    wait_until(in_sync, 60, f"replica set of {topic} in sync")


def kill_leaders(kafka3: KafkaCluster, topic: str, kills: int, seed: int) -> None:
    source = random.Random(seed)
    kafka3.create_topic(topic, PARTITIONS)
    with Load(kafka3.bootstrap(), {topic: PARTITIONS}, seed=seed) as load:
        load.wait_for_progress()
        for _ in rounds(kills):
            victim = kafka3.leader(topic, source.randrange(PARTITIONS))
            kafka3.kill9(victim)
            load.wait_for_progress(200)
            kafka3.restart(victim)
            wait_until_in_sync(kafka3, topic)
            load.wait_for_progress(200)
    report = load.report(kafka3.direct_bootstrap())
    print(f"{kills} kills: {report}")
    assert report.is_ok, str(report)
    assert report.failed == 0, load.errors[:3]
    assert report.acknowledged >= 400 * kills


def restart_in_turn(kafka3: KafkaCluster, topic: str, times: int) -> None:
    kafka3.create_topic(topic, PARTITIONS)
    with Load(kafka3.bootstrap(), {topic: PARTITIONS}, seed=2) as load:
        load.wait_for_progress()
        for number in rounds(times):
            kafka3.restart(kafka3.node_ids[number % 3])
            wait_until_in_sync(kafka3, topic)
            load.wait_for_progress()
    report = load.report(kafka3.direct_bootstrap())
    print(f"{times} restarts: {report}")
    assert report.is_ok, str(report)
    assert report.failed == 0, load.errors[:3]


def freeze(kafka3: KafkaCluster, topic: str, seconds: list[float]) -> None:
    """Partitions have one replica each: a frozen follower would hold up healthy leaders, whatever the producer does.

    The rate is compared with what was sent to the healthy ones in the same seconds (400 records a second where the
    machine can): one measured before or after tells more about the machine.
    """
    kafka3.create_topic(topic, PARTITIONS, replication_factor=1)
    leaders = {partition: kafka3.leader(topic, partition) for partition in range(PARTITIONS)}
    with Load(kafka3.bootstrap(), {topic: PARTITIONS}, seed=3) as load:
        load.wait_for_progress()
        for number, duration_s in enumerate(seconds):
            victim = kafka3.node_ids[number % 3]
            others = {partition for partition, leader in leaders.items() if leader != victim}
            wait_until(lambda: min(kafka3.leader(topic, p) for p in range(PARTITIONS)) > 0, 60, "leaders")
            load.wait_for_progress(100)
            kafka3.sigstop(victim)
            try:
                started_s, offered, count = time.monotonic(), load.offered(others), load.acknowledged(others)
                wait_until(partial(is_past, started_s + duration_s), duration_s + 5, "end")
                count, offered = load.acknowledged(others) - count, load.offered(others) - offered
            finally:
                kafka3.sigcont(victim)
            print(f"node {victim} frozen {duration_s:.0f} s: others got {count} of {offered} records in that time")
            assert count >= 0.9 * offered > 90 * duration_s
        kafka3.wait_until_ready()
        load.wait_for_progress(200)
    report = load.report(kafka3.direct_bootstrap())
    print(f"{len(seconds)} freezes: {report}")
    assert report.is_ok, str(report)
    assert report.failed == 0, load.errors[:3]


def delete_and_create(kafka3: KafkaCluster, topic: str, sizes: list[int]) -> None:
    """Each time, everything sent after the new topic was seen must be in it; before, only nothing false may be said."""
    for partitions in sizes[1:]:
        kafka3.create_topic(topic, sizes[0])
        with Load(kafka3.bootstrap(), {topic: None}, seed=partitions, allow_auto_create_topics=False) as load:
            load.wait_for_progress()
            kafka3.delete_topic(topic)
            kafka3.create_topic(topic, partitions)
            load.wait_for_progress(100)
            load.start_new_ledgers()
            load.wait_for_progress(400)
        logs = load.read(kafka3.direct_bootstrap())
        report = check_records(load.ledgers(), logs)
        # The old topic took its records with it.
        assert set(report.defects) <= {"lost", "wrong_offset"}, str(report)
        new = load.ledgers(since=1)
        new_report = check_records(new, of_ledgers(logs, new), pool_bytes_not_returned=load.pool_bytes_not_returned)
        print(f"{sizes[0]} -> {partitions} partitions: {new_report}")
        assert new_report.is_ok, str(new_report)
        assert new_report.failed == 0, load.errors[:3]
        kafka3.delete_topic(topic)


def test_killed_leaders_lose_duplicate_and_reorder_nothing(kafka3: KafkaCluster, topic_name: str) -> None:
    kill_leaders(kafka3, topic_name, kills=3, seed=1)


def test_rolling_restart_gives_no_error(kafka3: KafkaCluster, topic_name: str) -> None:
    restart_in_turn(kafka3, topic_name, times=3)


def test_frozen_broker_does_not_slow_the_others(kafka3: KafkaCluster, topic_name: str) -> None:
    freeze(kafka3, topic_name, [5])


def test_topic_made_anew_gets_everything_sent_afterwards(kafka3: KafkaCluster, topic_name: str) -> None:
    delete_and_create(kafka3, topic_name, [4, 4, 2])


def test_order_holds_while_partitions_grow_from_1_to_64(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name, 1)
    with Load(kafka3.bootstrap(), {topic_name: None}, seed=5, metadata_max_age_ms=1000) as load:
        load.wait_for_progress()
        for total in (2, 8, 64):
            kafka3.add_partitions(topic_name, total)
            load.wait_for_progress(30, only=set(range(total // 2, total)))
    report = load.report(kafka3.direct_bootstrap())
    assert report.is_ok, str(report)
    assert report.failed == 0, load.errors[:3]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_killed_leaders(kafka3: KafkaCluster, topic_name: str) -> None:
    kill_leaders(kafka3, topic_name, int(os.environ.get("KAFKAPROD_KILLS", "40")), seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_restarts(kafka3: KafkaCluster, topic_name: str) -> None:
    restart_in_turn(kafka3, topic_name, int(os.environ.get("KAFKAPROD_RESTARTS", "30")))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_frozen_brokers(kafka3: KafkaCluster, topic_name: str) -> None:
    count = int(os.environ.get("KAFKAPROD_FREEZES", "12"))
    freeze(kafka3, topic_name, [5 + 15 * number / max(count - 1, 1) for number in range(count)])


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_topics_made_anew(kafka3: KafkaCluster, topic_name: str) -> None:
    source = random.Random(0)
    count = int(os.environ.get("KAFKAPROD_RECREATIONS", "50"))
    delete_and_create(kafka3, topic_name, [4, *(source.randint(1, 8) for _ in range(count))])
