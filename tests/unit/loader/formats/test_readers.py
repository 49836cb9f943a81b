"""A reader that goes on from any position it told before gives exactly the rows that were left."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import arrow_files, avro_files, table_batches, text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.tables.row_plan import RowPlan, Template

COUNT = 120
PIECE_BYTES = 128

OBJECTS = [{"id": i, "name": f"n{i}" * (i % 9), "x": i / 4} for i in range(COUNT)]
LINES = "".join(json.dumps(row) + "\n" * (1 + i % 7 // 6) for i, row in enumerate(OBJECTS))  # blank ones between
CSV = "id,name\n" + "".join(
    f'{i},"a\n,{i}"\n' if i % 5 == 0 else f"{i},b\n" + "\n" * (i % 7 // 6) for i in range(COUNT)
)
COMMENTS = '# say, "so\nid,name\n' + "".join(
    f'{i},"a\n#,{i}"\n' if i % 5 == 0 else f'{i},b\n#"{i},"\n#{i}\n' for i in range(COUNT)
)
FEATURES = f'{{"type": "all", "of": [{{"features": [1]}}], "features": {json.dumps(OBJECTS)}, "count": [1]}}'
BAD_CSV = "id,name\n" + "".join(f"{i},b\n" if i % 11 else f"{i}\n" for i in range(1, COUNT))


def table_bytes(kind: str) -> bytes:
    table = pa.Table.from_pylist(OBJECTS)
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, sink, row_group_size=37)
    elif kind == "orc":
        pyarrow.orc.write_table(table, sink)
    elif kind == "avro":
        fields = [{"name": name, "type": kind} for name, kind in (("id", "int"), ("name", "string"), ("x", "double"))]
        rows = io.BytesIO()
        fastavro.writer(rows, {"type": "record", "name": "row", "fields": fields}, OBJECTS, sync_interval=100)
        return rows.getvalue()
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, 41)
    return sink.getvalue().to_pybytes()


# name, bytes, options
INPUTS = [
    ("a.txt", LINES.encode(), ReadOptions(RowPlan(""))),
    ("a.jsonl", LINES.encode(), ReadOptions(RowPlan(""))),
    ("keyed.jsonl", LINES.encode(), ReadOptions(RowPlan("", key=Template.of_column("id")))),
    ("a.jsonl.gz", gzip.compress(LINES.encode()), ReadOptions(RowPlan(""))),
    ("a.json", json.dumps(OBJECTS, indent=1).encode() + b"\n", ReadOptions(RowPlan(""))),
    ("short.json", b" [1, 2 ,\n3] ", ReadOptions(RowPlan(""))),
    ("empty.json", b" [ ] ", ReadOptions(RowPlan(""))),
    ("a.csv", CSV.encode(), ReadOptions(RowPlan(""))),
    ("raw.csv", CSV.encode(), ReadOptions(RowPlan("raw"))),
    ("raw-keyed.csv", CSV.encode(), ReadOptions(RowPlan("raw", key=Template.of_column("id")))),
    ("nameless.csv", CSV.partition("\n")[2].encode(), ReadOptions(RowPlan(""), column_names=["id", "name"])),
    ("bad.csv", BAD_CSV.encode(), ReadOptions(RowPlan(""))),
    ("comments.csv", COMMENTS.encode(), ReadOptions(RowPlan(""), comment="#")),
    ("comments.csv.gz", gzip.compress(COMMENTS.encode()), ReadOptions(RowPlan(""), comment="#")),
    ("raw-comments.csv", COMMENTS.encode(), ReadOptions(RowPlan("raw"), comment="#")),
    ("skipped.csv", f'a "title\n\n{CSV}'.encode(), ReadOptions(RowPlan(""), skip_lines=2)),
    ("separator.csv", b"sep=,\r\n" + CSV.encode(), ReadOptions(RowPlan(""))),
    ("features.json", FEATURES.encode(), ReadOptions(RowPlan(""), elements="features")),
    ("a.documents", "\n".join(json.dumps(row, indent=1) for row in OBJECTS).encode(), ReadOptions(RowPlan(""))),
    ("a.csv.gz", gzip.compress(CSV.encode()), ReadOptions(RowPlan(""))),
    ("a.parquet", table_bytes("parquet"), ReadOptions(RowPlan(""))),
    ("a.arrow", table_bytes("arrow"), ReadOptions(RowPlan("id"))),
    ("a.orc", table_bytes("orc"), ReadOptions(RowPlan(""))),
    ("a.avro", table_bytes("avro"), ReadOptions(RowPlan(""))),
    ("cast.avro", table_bytes("avro"), ReadOptions(RowPlan("x"), column_types={"x": "int"})),
]

Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(table_batches, "BATCH_ROWS", 16)
    monkeypatch.setattr(arrow_files, "BATCH_ROWS", 16)
    monkeypatch.setattr(avro_files, "GROUP_ROWS", 16)


def rows_of(block: RowBlock) -> Iterator[Row]:
    """Number, key and value of the good rows, and those of the bad ones, whose value is their reason."""
    for place, number in enumerate(block.numbers.tolist()):
        yield (
            number,
            None if block.key is None else block.key[place],
            None if block.value is None else block.value[place],
        )
    for bad in block.bad:
        yield bad.row, bad.data, bad.reason.encode()


@pytest.mark.parametrize(("name", "data", "options"), INPUTS, ids=[name for name, _, _ in INPUTS])
def test_from_any_position_the_rest_is_read(name: str, data: bytes, options: ReadOptions, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    (source,) = find_sources([str(tmp_path / name)], "documents" if name.endswith(".documents") else None)
    places = [(0, 0)]
    rows: list[Row] = []
    for block in read_rows(source, options):
        places.append((block.end_row, block.end_offset))
        rows += sorted(rows_of(block))
    assert len(rows) in (0, 3, COUNT - 1, COUNT, LINES.count("\n"))
    assert [number for number, _, _ in rows] == list(range(len(rows))) or name.endswith((".jsonl", ".jsonl.gz"))
    assert len(places) > 4 or len(rows) < 4
    for row, offset in places[:2] + places[2:-2:7] + places[-2:]:
        rest = [found for block in read_rows(source, options, row, offset) for found in sorted(rows_of(block))]
        assert rest == [found for found in rows if found[0] >= row], (row, offset)
