"""Brokers that name an address which cannot be reached: one line, a growing backoff, the reason in every place."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker import EmbeddedCluster
from kafkaprod.cli.doctor import examine_cluster
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BootstrapError, DeliveryTimeoutError
from tests.kafka.ports import free_ports

BOUND_S = 30
TRYING_MS = 5000
ELSEWHERE = "127.0.0.2"
ADVICE = "advertised.listeners: can it be reached from here"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "kafkaprod", "broker", "--port", str(port), "--advertised-host", ELSEWHERE]
    with subprocess.Popen([*command, "--topic", "t:1"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it listens
        yield f"127.0.0.1:{port}"
        process.terminate()


def test_record_says_which_address_the_cluster_named_after_few_attempts(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafkaprod")
    options = {"bootstrap.servers": bootstrap, "delivery.timeout.ms": TRYING_MS, "request.timeout.ms": 2000}
    with Producer(options) as producer:
        error = producer.send("t", b"x").exception(BOUND_S)
    assert isinstance(error, DeliveryTimeoutError)
    assert ELSEWHERE in str(error)
    assert ADVICE in str(error)
    ends = [record for record in caplog.records if re.match(rf"connection to {ELSEWHERE}.* ended", record.getMessage())]
    assert [record.levelno for record in ends if record.levelno > logging.DEBUG] == [logging.WARNING]
    assert 3 <= len(ends) <= 15  # with a backoff of 50 ms, and twice as long each time up to 1 s
    starts = [record for record in caplog.records if "connected to bootstrap" in record.getMessage()]
    assert len(starts) <= len(ends) + 1


def test_check_names_the_address(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(
            BootstrapError, match=rf"none of its brokers can be reached: node 0 at {ELSEWHERE}.*"
        ) as caught:
            producer.check(5)
        assert ADVICE in str(caught.value)
        assert producer.list_topics([]).brokers[0].host == ELSEWHERE


async def test_start_names_the_address(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(BootstrapError, match=ADVICE.partition(":")[0]):
            await producer.start(5)


def test_doctor_names_the_address_and_the_option(bootstrap: str) -> None:
    config = ProducerConfig.from_options(bootstrap_servers=bootstrap)
    with ClusterClient(config) as client:
        found = examine_cluster(client, config, "t")
    assert [finding.level.value for finding in found] == ["ok", "PROBLEM"]
    assert ELSEWHERE in found[1].text
    assert "advertised.listeners" in found[1].remedy


def test_one_broker_of_several_that_is_down_is_a_warning() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        config = ProducerConfig.from_options(bootstrap_servers=cluster.bootstrap_servers)
        cluster.brokers[-1].stop()
        with Producer(config) as producer:
            producer.check()
        with ClusterClient(config) as client:
            found = examine_cluster(client, config, None)
        assert not [finding for finding in found if finding.level.value == "PROBLEM"]
