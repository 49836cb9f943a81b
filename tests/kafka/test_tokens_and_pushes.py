"""Apache Kafka with its own validators of tokens and a receiver of client metrics; an issuer of tokens on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker.handlers.config_resources import CLIENT_METRICS
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthenticationError, KafkaError
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kafka.cluster import KafkaCluster
from tests.kafka.runtime import BROKER_VERSION, broker_class_path
from tests.spark.sessions import local_session
from tests.support.kafka.fixtures_kafka import skipped_where_unavailable
from tests.support.net.signed_tokens import TokenSigner
from tests.support.net.token_issuer import CLIENT_ID, SECRET, TokenIssuer
from tests.support.otlp import read_metrics

AUDIENCE, ISSUER = "kafka", "https://issuer.test"
SENT = "org.apache.kafka.producer.record.send.total"
TOPIC = "t"
WAIT_S = 60.0
_LISTENER = "listener.name.sasl_plaintext"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def signer() -> TokenSigner:
    return TokenSigner(iss=ISSUER, aud=AUDIENCE)


@pytest.fixture(scope="module")
def running_issuer(signer: TokenSigner) -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        running.keys = signer.public_keys()
        yield running


@pytest.fixture
def issuer(running_issuer: TokenIssuer, signer: TokenSigner) -> Iterator[TokenIssuer]:
    running_issuer.sign, running_issuer.lifetime_s = signer.sign, 60.0
    running_issuer.asked.clear()
    yield running_issuer
    running_issuer.stop()
    running_issuer.start()


def receiver_jar(directory: Path) -> Path:
    """Compile the receiver of metrics."""
    source = Path(__file__).parent / "java" / "FileReceiver.java"
    command = ["javac", "-nowarn", "-cp", broker_class_path(BROKER_VERSION), "-d", str(directory), str(source)]
    subprocess.run(command, check=True, timeout=120)
    jar = directory / "receiver.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.write(directory / "FileReceiver.class", "FileReceiver.class")
    return jar


@pytest.fixture(scope="module")
def pushes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pushes")


@pytest.fixture(scope="module")
def cluster(
    running_issuer: TokenIssuer, pushes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    with skipped_where_unavailable():
        jar = receiver_jar(tmp_path_factory.mktemp("receiver"))
        running = KafkaCluster(
            listeners=("PLAINTEXT", "SASL_PLAINTEXT"),
            overrides={
                "metric.reporters": "FileReceiver",
                f"{_LISTENER}.sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{_LISTENER}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
                f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": (
                    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
                ),
                f"{_LISTENER}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": running_issuer.keys_url,
                f"{_LISTENER}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
                f"{_LISTENER}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
                f"{_LISTENER}.oauthbearer.connections.max.reauth.ms": 3_600_000,
            },
            jvm_options=(
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={running_issuer.keys_url}",
                f"-Dkafkaprod.pushes={pushes}",
            ),
            plug_ins=str(jar),
        )
        with running:
            running.create_topic(TOPIC)
            yield running


def options(cluster: KafkaCluster, issuer: TokenIssuer, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        **more,
    }


def test_kafka_takes_the_metrics(cluster: KafkaCluster, pushes: Path) -> None:
    configs = [AlterableConfig(name="interval.ms", value="200"), AlterableConfig(name="metrics", value="*")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=configs)
    with ClusterClient(ProducerConfig.from_options(bootstrap_servers=cluster.bootstrap())) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert answer.error_code == 0
        client.wait(1000)  # until the broker has applied what the controller wrote
    with Producer(bootstrap_servers=cluster.bootstrap(), client_id="till") as producer:
        producer.send(TOPIC, b"first").result(WAIT_S)
        end = time.monotonic() + WAIT_S
        while sum(" till " in path.name for path in pushes.iterdir()) < 3:
            assert time.monotonic() < end, list(pushes.iterdir())
            time.sleep(0.05)
        instance_id = uuid.UUID(producer.metrics()["app-info"]["client-instance-id"])
        producer.send(TOPIC, b"second").result(WAIT_S)
    taken = sorted(path for path in pushes.iterdir() if " till " in path.name)
    assert [path.name.split()[-1] for path in taken] == ["more"] * (len(taken) - 1) + ["last"]
    assert len({path.name.split()[2] for path in taken}) == 1
    assert instance_id.version == 4
    read = [read_metrics(path.read_bytes()) for path in taken]
    assert sum(each[SENT]["points"][""] for each in read) == 2
    assert read[-1]["org.apache.kafka.producer.topic.record.send.total"]["points"].keys() == {f"topic={TOPIC}"}


def test_a_token_of_the_issuer_is_taken(cluster: KafkaCluster, issuer: TokenIssuer) -> None:
    with Producer(options(cluster, issuer)) as producer:
        producer.send(TOPIC, b"x").result(WAIT_S)
    assert len(issuer.asked) == 1


def test_tokens_are_renewed_under_load(cluster: KafkaCluster, issuer: TokenIssuer) -> None:
    issuer.lifetime_s = 4.0
    with Producer(options(cluster, issuer)) as producer:
        end = time.monotonic() + WAIT_S
        futures = []
        while len(issuer.asked) < 4 and time.monotonic() < end:
            futures.append(producer.send(TOPIC, b"x"))
            producer.flush(WAIT_S)
        offsets = [future.result(WAIT_S).offset for future in futures]
        metrics = producer.metrics()["producer-metrics"]
    assert len(issuer.asked) >= 4
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert metrics["successful-reauthentication-total"] >= 2
    assert metrics["failed-reauthentication-total"] == 0
    assert metrics["record-retry-total"] == 0


@pytest.mark.parametrize("claims", [{"aud": "others", "iss": ISSUER}, {"aud": AUDIENCE, "iss": "https://other.test"}])
def test_kafka_refuses_a_token_for_others(cluster: KafkaCluster, issuer: TokenIssuer, claims: dict[str, str]) -> None:
    other = TokenSigner(**claims)  # another key, too
    issuer.sign = other.sign
    with Producer(options(cluster, issuer)) as producer, pytest.raises(AuthenticationError) as caught:
        producer.send(TOPIC, b"x").result(WAIT_S)
    assert "invalid_token" in str(caught.value)


def test_a_wrong_secret_is_reported(cluster: KafkaCluster, issuer: TokenIssuer) -> None:
    wrong = options(cluster, issuer) | {"sasl.oauthbearer.client.credentials.client.secret": "canary"}
    with Producer(wrong) as producer, pytest.raises(AuthenticationError, match="HTTP 401 invalid_client"):
        producer.send(TOPIC, b"x").result(WAIT_S)


def test_an_endpoint_that_is_down_for_a_while_delays_and_loses_nothing(
    cluster: KafkaCluster, issuer: TokenIssuer
) -> None:
    issuer.lifetime_s = 3.0
    with Producer(options(cluster, issuer)) as producer:
        first = producer.send(TOPIC, b"x").result(WAIT_S).offset
        issuer.stop()
        end = time.monotonic() + WAIT_S
        sent = 0
        while True:  # until the login is over: a record then waits
            assert time.monotonic() < end, "the login never ended"
            future, sent = producer.send(TOPIC, b"x"), sent + 1
            try:
                future.result(1.0)
            except TimeoutError:
                break
        issuer.start()
        assert future.result(WAIT_S).offset == first + sent
    issuer.stop()
    chosen = options(cluster, issuer, **{"max.block.ms": 1000})
    with Producer(chosen) as producer, pytest.raises(KafkaError, match="cannot be used"):
        producer.send(TOPIC, b"x")


def test_a_command_with_a_properties_file(cluster: KafkaCluster, issuer: TokenIssuer, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("".join(f"{k}={v}\n" for k, v in options(cluster, issuer).items()))
    (tmp_path / "rows.txt").write_text("a\nb\n")
    command = [sys.executable, "-m", "kafkaprod", "load", "rows.txt", "-t", TOPIC, "-F", "client.properties"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert issuer.asked


def test_sql_and_a_stream_of_spark(cluster: KafkaCluster, issuer: TokenIssuer, tmp_path: Path) -> None:
    from kafkaprod.spark import register

    os.environ["PYSPARK_PYTHON"] = sys.executable
    given = {f"kafka.{name}": str(value) for name, value in options(cluster, issuer).items()} | {"topic": TOPIC}
    with Producer(bootstrap_servers=cluster.bootstrap()) as producer:
        first = producer.send(TOPIC, b"before").result(WAIT_S).offset
    with local_session("local[2]") as spark:
        register(spark)
        shown = ", ".join(f"`{name}` '{value}'" for name, value in given.items())
        spark.sql(f"create temporary view sink using kafkaprod options ({shown})")
        spark.sql("insert into sink (value) select cast(cast(id as string) as binary) from range(10)")
        assert len(issuer.asked) >= 1
        spark.range(10).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "in"))
        query = (
            spark.readStream.schema("value string")
            .parquet(str(tmp_path / "in"))
            .writeStream.format("kafkaprod")
            .options(**given)
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300), query.lastProgress
    with Producer(bootstrap_servers=cluster.bootstrap()) as producer:
        assert producer.send(TOPIC, b"after").result(WAIT_S).offset == first + 21
