"""The fixtures of the plugin: what a test breaks is whole again in the next one."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.architecture.core_sources import ROOT

pytest_plugins = ["pytester"]

_TESTS = """
import socket
import subprocess
import sys
import tomllib

import pytest

from tests.architecture.core_sources import ROOT
from kafkaprod import Producer
from kafkaprod.broker.embedding.faults import close, delay
from kafkaprod.protocol.api_keys import ApiKey

PATIENCE = {"delivery_timeout_ms": 15_000, "request_timeout_ms": 5_000}

def send(fixture, topic):
    with Producer(bootstrap_servers=fixture.bootstrap_servers, **PATIENCE) as producer:
        return producer.send(topic, b"x").result(20)

@pytest.fixture
def sender(kafkaprod_broker):
    producer = Producer(bootstrap_servers=kafkaprod_broker.bootstrap_servers, **PATIENCE)
    yield producer
    producer.send("at-the-end", b"x").result(20)  # the faults of the test are gone already
    producer.close()

def test_a_breaks_the_broker(kafkaprod_broker, sender):
    kafkaprod_broker.faults.on(ApiKey.PRODUCE, close())

def test_b_has_a_whole_one(kafkaprod_broker):
    send(kafkaprod_broker, "b")
    assert kafkaprod_broker.faults.fired_count(ApiKey.PRODUCE) == 0

def test_c_kills_it(kafkaprod_broker):
    kafkaprod_broker.kill()

def test_d_has_it_again_with_its_data(kafkaprod_broker):
    assert send(kafkaprod_broker, "b").offset == 1

def test_e_has_one_of_its_own(kafkaprod_broker, kafkaprod_fresh_broker):
    assert kafkaprod_fresh_broker.bootstrap_servers != kafkaprod_broker.bootstrap_servers
    assert send(kafkaprod_fresh_broker, "b").offset == 0

def test_f_breaks_the_cluster(kafkaprod_cluster):
    kafkaprod_cluster.create_topic("c")
    kafkaprod_cluster.leader("c", 0).faults.on(ApiKey.PRODUCE, close())
    kafkaprod_cluster.followers("c", 0)[0].kill()
    kafkaprod_cluster.cut(kafkaprod_cluster.leader("c", 0).id, "clients")

def test_g_has_a_whole_one(kafkaprod_cluster):
    assert kafkaprod_cluster.view().is_in_sync and all(broker.is_running for broker in kafkaprod_cluster.brokers)
    send(kafkaprod_cluster, "c")
"""


def test_each_test_begins_with_a_whole_broker_and_cluster(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["kafkaprod.broker.embedding.pytest_plugin"]')
    pytester.makepyfile(_TESTS)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:randomly", "-x").assert_outcomes(passed=7)


def test_the_plugin_can_be_named_on_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_a(kafkaprod_fresh_broker):\n    assert kafkaprod_fresh_broker.is_running\n")
    result = pytester.runpytest_subprocess("-p", "kafkaprod.broker.embedding.pytest_plugin")
    result.assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_by_itself_also_where_a_conftest_names_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution of its own stands for the installed package, whose entry points are those of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        (entry,) = tomllib.load(file)["project"]["entry-points"]["pytest11"].items()
    installed = pytester.mkdir("site") / "plugins-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{entry[0]} = {entry[1]}\n")
    pytester.makepyfile("def test_a(kafkaprod_fresh_broker):\n    assert kafkaprod_fresh_broker.is_running\n")
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.makeconftest('pytest_plugins = ["kafkaprod.broker.embedding.pytest_plugin"]')
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_plugin_loads_neither_broker_nor_producer_before_a_test_uses_it() -> None:
    program = (
        "import sys, kafkaprod.broker.embedding.pytest_plugin\nprint(*(n for n in sys.modules if 'kafkaprod' in n))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [
        "kafkaprod",
        "kafkaprod.broker",
        "kafkaprod.broker.embedding",
        "kafkaprod.broker.embedding.pytest_plugin",
    ]
