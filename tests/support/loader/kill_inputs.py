"""Inputs for loads that are killed: every row has an id of its own, so that a lost, double or foreign one shows."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import fastavro
import lz4.frame
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import zstandard

FOREIGN: Final = "foreign"
Bytes = Callable[[bytes], bytes]


def _rows(name: str, count: int, rng: random.Random) -> list[bytes]:
    return [b'{"id":"%s-%d","pad":"%s"}' % (name.encode(), i, b"x" * rng.randrange(60)) for i in range(count)]


def _lines(rows: Sequence[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in rows)


def _csv(rows: Sequence[bytes]) -> bytes:
    objects = map(json.loads, rows)
    return b"id,pad\n" + b"".join(b'%s,"%s"\n' % (each["id"].encode(), each["pad"].encode()) for each in objects)


def _table(rows: Sequence[bytes]) -> pa.Table:
    objects = [json.loads(row) for row in rows]
    return pa.table({name: [each[name] for each in objects] for name in ("id", "pad")})


def _parquet(rows: Sequence[bytes]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(rows), sink, row_group_size=max(len(rows) // 7, 1))
    return sink.getvalue()


def _arrow(rows: Sequence[bytes]) -> bytes:
    sink = io.BytesIO()
    table = _table(rows)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max(len(rows) // 7, 1))
    return sink.getvalue()


def _orc(rows: Sequence[bytes]) -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(_table(rows), sink, stripe_size=64 << 10)
    return sink.getvalue()


def _avro(rows: Sequence[bytes]) -> bytes:
    fields = [{"name": name, "type": "string"} for name in ("id", "pad")]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(sink, schema, map(json.loads, rows), sync_marker=b"the mark of file")
    return sink.getvalue()


def _zip(rows: Sequence[bytes]) -> bytes:
    """An archive of files of several formats, with hidden ones among them, as a Mac makes it."""
    sink = io.BytesIO()
    step = max(-(-len(rows) // len(MEMBERS)), 1)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for place, name in enumerate(MEMBERS):
            data = _WRITERS[name.rpartition(".")[2]](rows[place * step : (place + 1) * step])
            archive.writestr(zipfile.ZipInfo(name), data)
            archive.writestr(zipfile.ZipInfo(f"__MACOSX/._{name}"), b"\0\5\26\7")
    return sink.getvalue()


_WRITERS: Final[dict[str, Callable[[Sequence[bytes]], bytes]]] = {
    "jsonl": _lines,
    "json": lambda rows: b"[" + b",\n".join(rows) + b"]",
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "orc": _orc,
    "avro": _avro,
    "zip": _zip,
}
MEMBERS: Final = ("a.csv", "b.jsonl", "c.parquet", "d.avro")
_CODECS: Final[dict[str, Bytes]] = {
    "gz": lambda data: gzip.compress(data, 1, mtime=0),
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lz4.frame.compress,
    "bz2": bz2.compress,
}
ONE_FILE: Final = (
    "jsonl",
    "jsonl.gz",
    "jsonl.zst",
    "csv",
    "csv.gz",
    "csv.zst",
    "json",
    "parquet",
    "arrow",
    "orc",
    "avro",
    "zip",
)
FOLDER: Final = ("csv", "csv.gz", "jsonl", "jsonl.lz4", "jsonl.bz2", "jsonl.zst", "parquet", "arrow", "avro")
TABLES: Final = ("csv", "csv.gz", "parquet", "arrow", "orc", "avro")  # whose rows have the columns of folders
DAYS: Final = 3
STDIN: Final = "stdin"
ICEBERG: Final = ("iceberg",) if find_spec("pyiceberg") is not None else ()
KINDS: Final = ("file", "file", "folder", "days", "delta", *ICEBERG, STDIN)


@dataclass
class InputFile:
    """A file and its rows; it can be changed, and be put back as it was."""

    path: Path
    rows: list[bytes]
    root: Path | None = None  # of the whole input; None: the file's own folder
    ending: bytes = b""  # of each record: the columns that folders are named for
    _kept: tuple[bytes, int] = (b"", 0)

    def write(self, rows: Sequence[bytes], path: Path | None = None) -> None:
        """Write rows in the form that the name tells, to the file or to another one."""
        kind, *codecs = [suffix[1:] for suffix in self.path.suffixes]
        data = _WRITERS[kind](rows)
        for codec in codecs:
            data = _CODECS[codec](data)
        (path or self.path).write_bytes(data)

    def keep(self) -> None:
        """Remember the file as it is."""
        self._kept = self.path.read_bytes(), self.path.stat().st_mtime_ns

    def put_back(self) -> None:
        """Make the file what it was, with its time."""
        data, mtime_ns = self._kept
        self.path.write_bytes(data)
        os.utime(self.path, ns=(mtime_ns, mtime_ns))

    @property
    def records(self) -> list[bytes]:
        """What rows become."""
        return [row[:-1] + self.ending + b"}" for row in self.rows] if self.ending else self.rows

    def beside(self, name: str) -> Path:
        """A place that is not in the input."""
        return (self.root or self.path.parent).with_name(name)

    def foreign(self, count: int) -> list[bytes]:
        """Rows that no load may send."""
        return _rows(FOREIGN, count, random.Random(count))


@dataclass
class KillInput:
    """What one command loads.

    Attributes:
        names: The arguments that name it.
        files: Its files in the order of the load.
        more: Other arguments that it needs.
        is_pipe: It comes through stdin.
        table: The folder of the Delta or Iceberg table that it is.
    """

    names: list[str]
    files: list[InputFile]
    more: list[str] = field(default_factory=list)
    is_pipe: bool = False
    table: Path | None = None

    @property
    def rows(self) -> list[bytes]:
        """All rows in their order."""
        return [row for file in self.files for row in file.records]


def new_input(
    directory: Path,
    name: str,
    count: int,
    rng: random.Random,
    *,
    kinds: Sequence[str] = KINDS,
    may_be_pipe: bool = True,
) -> KillInput:
    """Write an input of a random kind: one file, a folder, or a file for stdin.

    Args:
        directory: For the files.
        name: In the ids of rows, and in the names of files.
        count: Of its rows.
        rng: Chooses.
        kinds: Of which.
        may_be_pipe: It may come through stdin.
    """
    kind = rng.choice([each for each in kinds if may_be_pipe or each != STDIN])
    if kind == "days":
        return _days(directory / name, name, count, rng)
    if kind == "delta":
        return _delta_table(directory / name, name, count, rng)
    if kind == "iceberg":
        return _iceberg_table(directory / name, name, count, rng)
    if kind == "folder":
        folder = directory / name
        folder.mkdir()
        each = max(count // len(FOLDER), 1)
        files = [_new_file(folder / f"{i}.{form}", f"{name}-{i}", each, rng) for i, form in enumerate(FOLDER)]
        return KillInput([str(folder)], files)
    if kind == STDIN:
        file = _new_file(directory / f"{name}.{rng.choice(('jsonl', 'jsonl.gz', 'jsonl.zst'))}", name, count, rng)
        return KillInput(["-"], [file], ["--format", "jsonl"], is_pipe=True)
    file = _new_file(directory / f"{name}.{rng.choice(ONE_FILE)}", name, count, rng)
    return KillInput([str(file.path)], [file])


def _days(root: Path, name: str, count: int, rng: random.Random) -> KillInput:
    """A table in folders `day=0/shop=a b`, with what a job that died has left behind."""
    files = []
    for day in range(DAYS):
        folder = root / f"day={day}" / "shop=a%20b"
        folder.mkdir(parents=True)
        path = folder / f"0.{rng.choice(TABLES)}"
        files.append(_new_file(path, f"{name}-{day}", max(count // DAYS, 1), rng, root))
        files[-1].ending = b',"day":%d,"shop":"a b"' % day
    for hidden in ("_temporary/0/part.parquet", ".ipynb_checkpoints/0.csv", "_SUCCESS"):
        (root / hidden).parent.mkdir(parents=True, exist_ok=True)
        (root / hidden).write_bytes(b"id,pad\nforeign,\n")
    return KillInput([str(root)], files)


def _delta_table(root: Path, name: str, count: int, rng: random.Random) -> KillInput:
    """A Delta table; beside its files are one that its second version took out and one that was never committed."""
    files = []
    for day in range(DAYS):
        folder = root / f"day={day}" / "shop=a%20b"
        folder.mkdir(parents=True)
        files.append(_new_file(folder / "0.parquet", f"{name}-{day}", max(count // DAYS, 1), rng, root))
        files[-1].ending = b',"day":%d,"shop":"a b"' % day
    gone, lost = files[0].path.with_name("1.parquet"), files[0].path.with_name("2.parquet")
    for path in (gone, lost):
        files[0].write(files[0].foreign(100), path)
    columns = [("id", "string"), ("pad", "string"), ("day", "integer"), ("shop", "string")]
    fields = [{"name": each, "type": kind, "nullable": True, "metadata": {}} for each, kind in columns]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {"id": name, "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["day", "shop"]}
    metadata |= {"schemaString": schema, "configuration": {}}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    _commit(root, 0, [{"protocol": protocol}, {"metaData": metadata}, _added(root, gone)])
    removed = {"path": _added(root, gone)["add"]["path"], "dataChange": True, "deletionTimestamp": 1}
    _commit(root, 1, [{"remove": removed}, *(_added(root, file.path) for file in files)])
    return KillInput([str(root)], files, table=root)


def _iceberg_table(root: Path, name: str, count: int, rng: random.Random) -> KillInput:
    """An Iceberg table with a later column; beside its files are one of its first snapshot, and an uncommitted one."""
    from pyiceberg.types import StringType

    from tests.support.loader.iceberg_folder import new_table

    (root / "data").mkdir(parents=True)
    files = [
        _new_file(root / "data" / f"{place}.parquet", f"{name}-{place}", max(count // DAYS, 1), rng, root)
        for place in range(DAYS)
    ]
    gone, lost = root / "data" / "8.parquet", root / "data" / "9.parquet"
    for path in (gone, lost):
        files[0].write(files[0].foreign(100), path)
    table = new_table(root, _table(files[0].rows).schema)
    table.add_files([str(gone)])
    table.delete()
    table.add_files([str(file.path) for file in files])
    with table.update_schema() as update:
        update.add_column("note", StringType())
    for file in files:
        file.ending = b',"note":null'
    return KillInput([str(root)], files, table=root)


def _another_snapshot(root: Path) -> Callable[[], None]:
    """Commit the file that was not; return what undoes it."""
    from pyiceberg.table import StaticTable

    from tests.support.loader.iceberg_folder import FolderCatalog

    metadata = max((root / "metadata").glob("v*.metadata.json"), key=_version)
    table = StaticTable.from_metadata(str(metadata))
    table.catalog = FolderCatalog(root, _version(metadata))
    table.add_files([str(root / "data" / "9.parquet")])
    return (root / "metadata" / f"v{_version(metadata) + 1}.metadata.json").unlink


def _version(metadata: Path) -> int:
    return int(metadata.name[1:].partition(".")[0])


def _added(root: Path, path: Path) -> dict[str, dict[str, Any]]:
    values = {"day": path.parts[-3].partition("=")[2], "shop": "a b"}
    name = quote(str(path.relative_to(root)))
    size = path.stat().st_size
    return {"add": {"path": name, "partitionValues": values, "size": size, "modificationTime": 0, "dataChange": True}}


def _commit(root: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> Path:
    log = root / "_delta_log" / f"{version:020}.json"
    log.parent.mkdir(exist_ok=True)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return log


def _new_file(path: Path, name: str, count: int, rng: random.Random, root: Path | None = None) -> InputFile:
    file = InputFile(path, _rows(name, count, rng), root)
    file.write(file.rows)
    file.keep()
    return file


def change(of: KillInput, rng: random.Random, *, sees_times: bool) -> tuple[str, Callable[[], None]]:
    """Change an input of files so that a resumed load must refuse it.

    Args:
        of: The input.
        rng: Chooses.
        sees_times: The load compares the times of files, too.

    Returns:
        What was done, and what undoes it.
    """
    file = rng.choice(of.files)
    kinds = ["grown", "cut", "other rows", *(["touched"] if sees_times else [])]
    if len(of.files) > 1:
        kinds += ["another file", "a file less"]
    kind = rng.choice(kinds)
    if kind == "another file" and of.table is not None and (of.table / "metadata").is_dir():
        return "another version", _another_snapshot(of.table)
    if kind == "another file" and of.table is not None:
        log = _commit(of.table, 2, [_added(of.table, of.files[0].path.with_name("2.parquet"))])
        return "another version", log.unlink
    if kind == "another file":
        new = file.path.with_name("9.jsonl")
        new.write_bytes(_lines(file.foreign(100)))
        return kind, new.unlink
    if kind == "a file less":
        away = file.beside("away")
        file.path.rename(away)
        return kind, lambda: void(away.rename(file.path))
    if kind == "touched":
        os.utime(file.path, ns=(1, 1))
    else:
        rows = {
            "grown": [*file.rows, *file.foreign(10)],
            "cut": file.rows[:-1],
            "other rows": file.foreign(len(file.rows)),
        }
        file.write(rows[kind])
    return kind, file.put_back


def replace_while_read(of: KillInput, rng: random.Random) -> Callable[[], None]:
    """Put another file in the place of one that a load may be reading; return what undoes it."""
    file = rng.choice(of.files)
    away, other = file.beside("away"), file.beside("other")
    file.write(file.foreign(len(file.rows)), other)
    os.link(file.path, away)
    other.replace(file.path)
    return lambda: void(away.replace(file.path))


def void(_: object) -> None:
    """Take what a call returns."""
