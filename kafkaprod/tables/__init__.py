"""Turn tables into records: data frames, Arrow objects, arrays and lists as blocks of columns, one result for all.

`Producer.send_table` is the face. `sources` turns whatever it is given into Arrow batches, `plan` turns each batch into
parts (one topic's columns), `result` puts the outcomes of the parts together again in input order. `row_plan` maps
rows of files for the loader: it names the rows that have no record instead of refusing the table.
"""

from kafkaprod.tables.plan import AvroRows, JsonRows, Named, Part, TablePlan, ValueSpec
from kafkaprod.tables.result import TableResult
from kafkaprod.tables.sources import read_batches

__all__ = ["AvroRows", "JsonRows", "Named", "Part", "TablePlan", "TableResult", "ValueSpec", "read_batches"]
