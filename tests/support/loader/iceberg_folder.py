"""Make Iceberg tables in folders, as a catalog of a file system does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import CommitTableResponse
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata


class FolderCatalog(NoopCatalog):
    """Writes v1.metadata.json, v2.metadata.json and so on.

    Args:
        folder: Of the table.
        version: The last one that is there.
    """

    def __init__(self, folder: Path, version: int = 0) -> None:
        super().__init__("folder")
        self._folder = folder
        self._version = version

    def write(self, metadata: TableMetadata) -> str:
        """Write the next version; return its place."""
        self._version += 1
        place = self._folder / "metadata" / f"v{self._version}.metadata.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(metadata.model_dump_json())
        return str(place)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """See Catalog."""
        metadata = update_table_metadata(table.metadata, updates)
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": self.write(metadata)})


def new_table(
    folder: Path, schema: Schema | pa.Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **properties: str
) -> Table:
    """Make an empty table.

    Args:
        folder: Its place.
        schema: Its columns.
        spec: What it is partitioned by, with the ids 1, 2 and so on of the columns.
        properties: Of the table; dots are double underscores.
    """
    if isinstance(schema, pa.Schema):
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

        schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
    catalog = FolderCatalog(folder)
    named = {name.replace("__", "."): value for name, value in properties.items()}
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, str(folder), named)
    return Table(("folder", "table"), metadata, catalog.write(metadata), PyArrowFileIO(), catalog)
