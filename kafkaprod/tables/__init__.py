"""Turn tables into records: data frames, Arrow objects, arrays and lists as blocks of columns, one result for all.

`Producer.send_table` is the face. `sources` turns whatever it is given into Arrow batches, `plan` turns each batch into
parts (one topic's columns), `result` puts the outcomes of the parts together again in input order. `row_plan` maps
rows of files for the loader: it names the rows that have no record instead of refusing the table.

plan            maps the columns of a table to records, batch by batch
avro            encode rows as Avro records with Confluent's wire header
avro_values     hold values to an Avro schema, before fastavro writes them
registry        schemas and their ids in a schema registry, through confluent-kafka's client (extra `registry`)
result          the outcome of all rows of one table, in the table's order
row_plan        the columns of a row, mapped to its record, a block of rows at a time
sources         read tables of any library as Arrow batches
python_columns  turn NumPy arrays and lists of Python objects into plain buffers of Arrow columns
"""

from kafkaprod.tables.plan import AvroRows, JsonRows, Named, Part, TablePlan, ValueSpec
from kafkaprod.tables.result import TableResult
from kafkaprod.tables.sources import read_batches

__all__ = ["AvroRows", "JsonRows", "Named", "Part", "TablePlan", "TableResult", "ValueSpec", "read_batches"]
