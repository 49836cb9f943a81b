"""Find the files of one snapshot of an Iceberg table, and what their columns are in the table.

The library `pyiceberg` reads the metadata, which must be in the table's folder: there is no catalog. A table that was
moved can be read, too, though its metadata names each file by the place where it was. What would need more than whole
Parquet files is refused: delete files and deletion vectors. Source: the specification of Apache Iceberg, "Scan
Planning" and "Column Projection".
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.source import FolderColumns, is_inside
from kafkaprod.loader.opening.table_columns import TableColumn, match_ids

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

METADATA: Final = "metadata"
_HINT: Final = "version-hint.text"
_FILE: Final = re.compile(r"^file:(//)?(?=/)")
_COMPRESSED: Final = b"\x1f\x8b"
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
MOST_METADATA_BYTES: Final = 128 << 20
MOST_HINT_TEXT: Final = 200  # characters
# v3.metadata.json of a file system, 00003-<uuid>.metadata.json of a catalog; either may be compressed.
_NAME: Final = re.compile(r"[^/]+\.metadata\.json(?:\.gz)?")
_VERSION: Final = re.compile(r"v?(\d+)[-.]")


def is_iceberg_table(name: str) -> bool:
    """Return whether this is the folder of an Iceberg table."""
    return bool(_metadata_names(name))


def iceberg_files(
    directory: str, snapshot_id: int | None = None
) -> Iterator[tuple[str, FolderColumns, tuple[TableColumn, ...] | None, int]]:
    """Yield the files of a snapshot of an Iceberg table, by name.

    Args:
        directory: The folder of the table.
        snapshot_id: Which; None: the current one.

    Yields:
        The path; the columns of its rows that are not in the file, whose values are Python's; those that are; the id
        of the snapshot.

    Raises:
        LoadRefusedError: A package is missing, there is no such snapshot, or whole files are not the rows of it.
    """
    metadata = _metadata_file(directory)
    with _errors_of(directory, snapshot_id):
        from kafkaprod.loader.formats.arrow_rows import import_pyarrow

        import_pyarrow("Iceberg")
        table = _open_table(directory, metadata)
        snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        if snapshot is None and snapshot_id is not None:
            known = ", ".join(str(each.snapshot_id) for each in table.snapshots()[-5:]) or "none"
            raise LoadRefusedError(f"{directory} is an Iceberg table without snapshot {snapshot_id}; its last: {known}")
        if snapshot is None:
            return
        scan = table.scan(snapshot_id=snapshot_id)
        found = []
        for task in scan.plan_files():
            _check_task(directory, task)
            path = _place_of(directory, table.metadata.location, task.file.file_path)
            if not os.path.isfile(path):  # a pipe would be waited for
                which = f"snapshot {snapshot.snapshot_id} has {path}"
                raise LoadRefusedError(f"{directory} is not a whole Iceberg table: {which}, which is not there")
            found.append((path, *_columns_of(table, scan.projection(), task, path), int(snapshot.snapshot_id)))
        yield from sorted(found, key=lambda file: file[0])


# -- metadata ----------------------------------------------------------------------------------------------------------


def _metadata_names(directory: str) -> list[str]:
    """Return the names of the files of metadata."""
    try:
        names = os.listdir(os.path.join(directory, METADATA))
    except OSError:
        return []
    return sorted(name for name in names if _NAME.fullmatch(name) and not name.startswith("."))


def _metadata_file(directory: str) -> str:
    """Return the newest file of metadata: the one that the hint names, or that of the highest version."""
    names = _metadata_names(directory)
    folder = os.path.join(directory, METADATA)
    versions = [int(match[1]) if (match := _VERSION.match(name)) else -1 for name in names]
    with contextlib.suppress(FileNotFoundError):
        hint = _content_of(os.path.join(folder, _HINT)).decode(errors="backslashreplace").strip()[:MOST_HINT_TEXT]
        named = [
            name
            for name, version in zip(names, versions, strict=True)
            if hint in (name, str(version), name.partition(".")[0])
        ]
        if len(named) == 1:
            return os.path.join(folder, named[0])
        raise LoadRefusedError(
            f"{directory} is not a whole Iceberg table: its {_HINT} says {hint!r}, and "
            f"{'no file' if not named else 'more than one file'} of metadata has this version"
        )
    if min(versions) < 0 or versions.count(max(versions)) > 1:
        raise LoadRefusedError(
            f"{directory} is an Iceberg table, and which of its files of metadata is the newest only its catalog "
            f"knows: {', '.join(names[-3:])}. Write the name of it into {os.path.join(folder, _HINT)}, or read the "
            "table with pyiceberg or Spark, and send it with send_table"
        )
    return os.path.join(folder, names[versions.index(max(versions))])


class _MovedFiles:
    """Opens the files of a table where they are now, for pyiceberg.

    Args:
        directory: The folder of the table.
        location: Where it was when it was written.
    """

    def __init__(self, directory: str, location: str) -> None:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self._io = PyArrowFileIO()
        self._directory = directory
        self._location = location

    def new_input(self, location: str) -> Any:
        """Return an input file of pyiceberg."""
        return self._io.new_input(os.path.abspath(_place_of(self._directory, self._location, location)))


def _open_table(directory: str, metadata: str) -> Table:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.table import StaticTable
    from pyiceberg.table.metadata import TableMetadataUtil

    content = _content_of(metadata)
    if content.startswith(_COMPRESSED):
        content = _decompressed(content, metadata)
    parsed = TableMetadataUtil.parse_raw(content.decode())
    files: Any = _MovedFiles(directory, parsed.location)
    return StaticTable(("table", metadata), parsed, metadata, files, NoopCatalog("none"))


def _content_of(path: str) -> bytes:
    """Return the content of a file of metadata, which must be a regular one. Raises LoadRefusedError, OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe has no end
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_METADATA_BYTES:
            raise LoadRefusedError(f"{path} is no file of metadata: it is no regular file, or too large")
        return file.read(MOST_METADATA_BYTES)


def _decompressed(content: bytes, path: str) -> bytes:
    stream = zlib.decompressobj(_GZIP_WBITS)
    try:
        found = stream.decompress(content, MOST_METADATA_BYTES)
    except zlib.error as error:
        raise LoadRefusedError(f"{path} is damaged: {error}") from error
    if not stream.eof:
        raise LoadRefusedError(
            f"{path} is cut off, or has more than {MOST_METADATA_BYTES:,} bytes when it is decompressed"
        )
    return found


def _place_of(directory: str, location: str, name: str) -> str:
    """Return where a file of a table is that has this folder now, and was at that location."""
    root, path = _FILE.sub("", location.rstrip("/")), _FILE.sub("", name)
    if path.startswith(root + "/"):
        here = os.path.join(directory, path[len(root) + 1 :])
        if is_inside(directory, here):
            return here
    elif os.path.isabs(path) and os.path.exists(path) and is_inside(directory, path):
        return path
    # It may have been moved before, and its location changed: what counts is where the file is in the folder.
    parts = path.split("/")
    for place in range(len(parts) - 1, 0, -1):
        here = os.path.join(directory, *parts[place - 1 :])
        if parts[place - 1] in (METADATA, "data") and os.path.exists(here) and is_inside(directory, here):
            return here
    raise LoadRefusedError(
        f"{directory} is an Iceberg table with files outside of its folder, {name} first: copy them into it, or read "
        "it with pyiceberg or Spark, and send it with send_table"
    )


@contextlib.contextmanager
def _errors_of(directory: str, snapshot_id: int | None) -> Iterator[None]:
    try:
        import pyiceberg.exceptions
    except ImportError as error:
        raise LoadRefusedError(
            f"{directory} is an Iceberg table, whose files alone would bring rows that were deleted or never "
            "committed: reading its metadata needs pyiceberg (pip install 'kafkaprod[iceberg]')"
        ) from error
    which = "" if snapshot_id is None else f" of snapshot {snapshot_id}"
    try:
        yield
    except LoadRefusedError:
        raise
    except (pyiceberg.exceptions.ValidationError, ValueError, NotImplementedError, KeyError, TypeError) as error:
        why = " ".join(str(error).split())[:300]
        if "equality deletes" in why:
            why = "files with deleted rows (equality delete files): compact it with rewrite_data_files first"
        raise LoadRefusedError(
            f"{directory} is an Iceberg table{which} that pyiceberg {pyiceberg.__version__} cannot read: {why}"
        ) from error
    except OSError as error:
        raise LoadRefusedError(f"{directory} is not a whole Iceberg table{which}: {error}") from error


# -- files -------------------------------------------------------------------------------------------------------------


def _check_task(directory: str, task: FileScanTask) -> None:
    why = ""
    if task.delete_files:
        kinds = {str(getattr(each.file_format, "value", each.file_format)).lower() for each in task.delete_files}
        what = "deletion vectors" if "puffin" in kinds else "position delete files"
        why = f"files with deleted rows ({what}): compact it with rewrite_data_files first"
    elif str(getattr(task.file.file_format, "value", task.file.file_format)).lower() != "parquet":
        why = f"files of the format {task.file.file_format}, and not Parquet"
    if why:
        raise LoadRefusedError(
            f"{directory} is an Iceberg table that has {why}. Or read it with pyiceberg or Spark, and send it with "
            "send_table"
        )


def _columns_of(
    table: Table, schema: Schema, task: FileScanTask, path: str
) -> tuple[FolderColumns, tuple[TableColumn, ...] | None]:
    """Return the columns of a table that a file does not have, with their values, and those that it has."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from kafkaprod.loader.formats.arrow_forms import folder_value

    mapping = table.name_mapping()
    fields = [] if mapping is None else mapping.root
    names = {name: field.field_id for field in fields for name in field.names if field.field_id is not None}
    wanted = schema_to_pyarrow(schema)
    try:
        footer = pq.ParquetFile(path)
        row_count, own = footer.metadata.num_rows, footer.schema_arrow
    except (pa.ArrowException, OSError):  # whoever reads the file says what is wrong
        return (), None
    if row_count != task.file.record_count:
        raise LoadRefusedError(
            f"{path} is not the file of the Iceberg table that it was: it has {row_count:,} rows, and the table knows "
            f"{task.file.record_count:,}"
        )
    found = match_ids(own, wanted, names, path)
    constants = _partition_values(table, task)
    missing: list[tuple[str, Any]] = []
    for field in schema.fields:
        if any(column.field.name == field.name for column in found):
            continue
        value = constants.get(field.field_id, field.initial_default)
        if field.field_id in constants and pa.types.is_float64(wanted.field(field.name).type):
            raise LoadRefusedError(
                f"{path} has no column {field.name!r}, by whose doubles its Iceberg table is partitioned, and "
                "pyiceberg reads them as floats: read it with Spark, and send it with write()"
            )
        if value is not None:
            value = folder_value(pa.scalar(value, wanted.field(field.name).type))
        elif field.required:
            raise LoadRefusedError(f"{path} has no column {field.name!r}, which its Iceberg table requires")
        missing.append((field.name, value))
    return tuple(missing), found


def _partition_values(table: Table, task: FileScanTask) -> Mapping[int, Any]:
    """Return the values of columns that the table is partitioned by as they are, by the id of the field."""
    from pyiceberg.transforms import IdentityTransform

    spec = table.specs()[task.file.spec_id]
    return {
        field.source_id: task.file.partition[place]
        for place, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }
