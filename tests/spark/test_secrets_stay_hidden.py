"""One text is the password and all other secret options: plans, event log, errors and files of Spark do not have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.cli.doctor_redaction import secret_names
from kafkaprod.errors import ConfigError
from kafkaprod.spark import write
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.reader_options import parse_reader_options
from tests.spark.streams import run_stream
from tests.support.canary import CANARY, all_of

pytestmark = pytest.mark.spark("4.1")

JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="{CANARY}";'
LOGINS = {
    "password": {"kafka.sasl.username": "ann", "kafka.sasl.password": CANARY},
    "jaas": {"kafka.sasl.jaas.config": JAAS},
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"t": 1}, sasl_users={"ann": CANARY}) as broker:
        yield broker.bootstrap_servers


def event_log(spark: SparkSession) -> str:
    """Everything until now."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    (path,) = Path(urlsplit(context.getConf().get("spark.eventLog.dir") or "").path).iterdir()
    return path.read_text()


@pytest.mark.parametrize("login", LOGINS)
def test_plans_and_event_log_of_reads_and_writes_have_no_password(
    spark: SparkSession, servers: str, login: str, tmp_path: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        **LOGINS[login],
    }
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    write(rows, options, topic="t")
    rows.write.format("kafkaprod").mode("append").options(**options).option("topic", "t").save()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\nb\n")
    lines = spark.readStream.format("text").load(str(tmp_path / "in"))
    run_stream(lines, tmp_path / "checkpoint", {**options, "topic": "t"}, by_batch=False)
    quoted = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMP VIEW v USING kafkaprod OPTIONS ({quoted}, subscribe 't')")
    back = spark.table("v")
    assert back.count() >= 8
    log = event_log(spark)
    assert "kafka.sasl" in log
    assert CANARY not in log
    assert CANARY not in back._jdf.queryExecution().toString()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    assert not [path for path in left if CANARY.encode() in path.read_bytes()]


def test_a_view_with_every_secret_option_shows_none(spark: SparkSession) -> None:
    """Spark keeps the plan of a command, whether it can be carried out or not."""
    names = [name if name.startswith("schema.registry.") else f"kafka.{name}" for name in secret_names()]
    quoted = ", ".join(f"`{name}` '{CANARY}'" for name in ["kafka.bootstrap.servers", "subscribe", *names])
    spark.sql(f"CREATE TEMP VIEW every USING kafkaprod OPTIONS ({quoted.replace(CANARY, '127.0.0.1:9', 2)})")
    with pytest.raises(Exception) as caught:
        spark.table("every").count()
    log = event_log(spark)
    assert [name for name in names if name not in log] == []
    assert CANARY not in log + str(caught.value)


@pytest.mark.parametrize("name", list(secret_names()))
def test_options_that_are_refused_or_kept_are_not_shown(name: str) -> None:
    full_name = name if name.startswith("schema.registry.") else f"kafka.{name}"
    for parse in (parse_options, parse_reader_options):
        for spelling in (full_name, f"{full_name}s", name):
            given = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t", "subscribe": "t", spelling: CANARY}
            try:
                shown = repr(parse(given))
            except ConfigError as error:
                shown = all_of(error)
            assert CANARY not in shown
