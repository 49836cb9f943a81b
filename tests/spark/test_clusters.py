"""Sessions of other kinds: executors in processes of their own, Spark Connect, workers that lack the package."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.builds.other_sparks import environment_for
from tests.kafka.cluster import KafkaCluster
from tests.spark.topics import read_topic

PROGRAM = Path(__file__).with_name("round_trip.py")
LOCAL_CLUSTER = ("--master", "local-cluster[2,1,1024]")
CONNECT = ("--remote", "local[2]")

Run = Callable[..., str]


@pytest.fixture
def round_trip(embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path) -> Run:
    """Runs the program away from the source tree; gives its output."""

    def run(*arguments: str, worker: str = sys.executable, servers: str = embedded_broker.bootstrap_servers) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *arguments, servers, topic_name],
            cwd=tmp_path,
            env=environment | {"PYSPARK_PYTHON": worker, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
        return done.stdout

    return run


def check(output: str, ways: str, servers: str, topic: str) -> None:
    """The program found its rows, and so does a reader that has nothing to do with Spark."""
    found = [line.split(":")[0] for line in output.splitlines() if line.endswith("20000 rows are the same")]
    assert found == ways.split()
    assert {len(read_topic(servers, f"{topic}-{way}")) for way in ways.split()} == {20_000}


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.spark("4.0")
@pytest.mark.parametrize("session", [LOCAL_CLUSTER, CONNECT], ids=["local-cluster", "connect"])
@pytest.mark.parametrize("is_shipped", [False, True], ids=["installed", "shipped"])
def test_rows_come_back_as_spark_has_them(
    round_trip: Run, embedded_broker: EmbeddedBroker, topic_name: str, session: tuple[str, str], is_shipped: bool
) -> None:
    if is_shipped:
        output = round_trip(*session, "--ship", worker=environment_for(pyspark.__version__, is_bare=True))
    else:
        output = round_trip(*session)
    has_stream = session != CONNECT or not is_shipped
    check(
        output, "write format stream" if has_stream else "write format", embedded_broker.bootstrap_servers, topic_name
    )


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.external
@pytest.mark.spark("4.0")
def test_rows_come_back_from_apache_kafka(round_trip: Run, kafka: KafkaCluster, topic_name: str) -> None:
    for way in ("write", "format", "stream"):
        # The rows' timestamps are years old: with the default retention Kafka deletes them soon.
        kafka.create_topic(f"{topic_name}-{way}", 3, config={"retention.ms": -1})
    output = round_trip("--master", "local[2]", servers=kafka.bootstrap())
    check(output, "write format stream", kafka.bootstrap(), topic_name)
