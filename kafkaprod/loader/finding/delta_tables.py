"""Find the files of one version of a Delta table: its log says which files count, and the values of their folders.

The library `deltalake` reads the log. What would need more than whole Parquet files is refused: deletion vectors, and
columns whose names in the files are others. Source: the protocol of Delta Lake, `PROTOCOL.md`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.source import FolderColumns, is_inside
from kafkaprod.loader.opening.table_columns import TableColumn, match_names

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

LOG: Final = "_delta_log"

# Features of readers that do not change what a row of a file is. Vectors and mapped names are looked for.
_FEATURES: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_MAPPING: Final = "delta.columnMapping.mode"


def is_delta_table(name: str) -> bool:
    """Return whether this is the folder of a Delta table."""
    return os.path.isdir(os.path.join(name, LOG))


def delta_files(
    directory: str, version: int | None = None
) -> Iterator[tuple[str, FolderColumns, tuple[TableColumn, ...] | None, int]]:
    """Yield the files of a version of a Delta table, by name.

    Args:
        directory: The folder of the table.
        version: Which; None: the newest.

    Yields:
        The path; the columns of its rows that are not in the file, whose values are Python's; those that are, or None
        if the file cannot be read; the version.

    Raises:
        LoadRefusedError: A package is missing, there is no such version, or whole files are not the rows of it.
    """
    with _errors_of(directory, version):
        from deltalake import DeltaTable

        from kafkaprod.loader.formats.arrow_rows import import_pyarrow

        import_pyarrow("Delta")
        table = DeltaTable(directory, version=version)
        _check_features(table, directory)
        yield from sorted(_files_of(table, directory), key=lambda file: file[0])


def _files_of(
    table: DeltaTable, directory: str
) -> Iterator[tuple[str, FolderColumns, tuple[TableColumn, ...] | None, int]]:
    import pyarrow as pa

    from kafkaprod.loader.formats.arrow_forms import folder_value

    files = pa.table(table.get_add_actions())
    partitions: list[str] = list(table.metadata().partition_columns)
    schema = pa.schema(table.schema().to_arrow())
    own = pa.schema([field for field in schema if field.name not in partitions])
    for name in partitions:
        if pa.types.is_binary(schema.field(name).type) or pa.types.is_large_binary(schema.field(name).type):
            raise LoadRefusedError(
                f"{directory} is a Delta table with a binary partition column, {name!r}, which deltalake changes. "
                "Read it with Spark, and send it with write()"
            )
    for place, file in enumerate(files.select(["path"]).to_pylist()):
        path = _path_of(directory, file["path"])
        if not os.path.isfile(path):  # a pipe would be waited for
            raise LoadRefusedError(
                f"{directory} is not a whole Delta table: version {table.version()} has {path}, which is not there. "
                "VACUUM removes files that only earlier versions have"
            )
        values = {name: folder_value(files["partition"][place][name]) for name in partitions}
        columns = _columns_of(path, own)
        if columns is not None:  # others were added later: null in older files
            found = {column.name for column in columns}
            values |= dict.fromkeys(name for name in own.names if name not in found)
        yield path, tuple(values.items()), columns, int(table.version())


@contextlib.contextmanager
def _errors_of(directory: str, version: int | None) -> Iterator[None]:
    try:
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise LoadRefusedError(
            f"{directory} is a Delta table, whose files alone would bring rows that were deleted or never committed: "
            "reading its log needs deltalake (pip install 'kafkaprod[delta]')"
        ) from error
    try:
        yield
    except LoadRefusedError:
        raise
    except (DeltaError, ValueError, OSError) as error:
        which = "" if version is None else f" of version {version}"
        why = " ".join(str(error).partition("\n   0: ")[0].split())[:300]  # behind it is how deltalake came there
        raise LoadRefusedError(f"{directory} is not a whole Delta table{which}: {why}") from error


def _check_features(table: DeltaTable, directory: str) -> None:
    """Refuse a table whose rows are not those of its files."""
    mode = table.metadata().configuration.get(_MAPPING, "none")
    features = set(table.protocol().reader_features or ())
    why = ""
    if mode != "none":
        why = f"has columns that have other names in its files ({_MAPPING}={mode})"
    elif unknown := features - _FEATURES:
        why = f"has {', '.join(sorted(unknown))}, which a load cannot read"
    elif "deletionVectors" in features and _has_vectors(table):
        why = "has files with deleted rows (deletion vectors): run OPTIMIZE or REORG TABLE ... APPLY (PURGE) first"
    if why:
        raise LoadRefusedError(
            f"{directory} is a Delta table that {why}. Or read it with deltalake or Spark, and send it with send_table"
        )


def _has_vectors(table: DeltaTable) -> bool:
    vectors: Any = getattr(table, "deletion_vectors", None)  # earlier versions of deltalake open no such table
    return vectors is None or any(batch.num_rows for batch in vectors())


def _path_of(directory: str, name: str) -> str:
    path = unquote(name)
    place = os.path.join(directory, path)
    if os.path.isabs(path) or "://" in path or path.startswith("file:") or not is_inside(directory, place):
        raise LoadRefusedError(
            f"{directory} is a Delta table with files outside of its folder, {path} first, as a shallow clone has: "
            "load the table that has them"
        )
    return place


def _columns_of(path: str, table: pa.Schema) -> tuple[TableColumn, ...] | None:
    """Return the columns of a file that its table has; None: whoever reads the file says what is wrong."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return match_names(pq.read_schema(path), table)
    except (pa.ArrowException, OSError):
        return None
