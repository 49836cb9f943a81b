"""Load files into a topic, in columns: `kafkaprod load`.

inputs (which files, which format) -> readers (blocks of rows) -> partitions -> Producer.send_columns, block by block;
`manifest` and `recovery` continue a load that was killed without losing or duplicating a record.

preview                the first records of a load as they would be sent, for `--dry-run`
progress               how a load advances: a bar on a terminal, lines elsewhere
transactional          runs a load in transactions: rows and position are committed together
load                   runs a load from beginning to end
inputs                 finds the inputs of a load, and recognizes what they are
folders                folders as tables: their columns
transactional_attempt  sends the rows of a transactional load, transaction by transaction
attempt                one attempt of a load: read on from the manifest's position, send, move the manifest
bad_rows               rows that cannot be sent: stop the load, leave them out, or keep them elsewhere
feed                   blocks of rows from a position on: which are left out, which are sent
in_flight              blocks that were sent; moves the manifest when their outcomes are known
paths                  finds the files that names, patterns and directories stand for; refuses tables with a log
delta_tables           the files of one version of a Delta table
iceberg_tables         the files of one snapshot of an Iceberg table
producing              makes the producer of a load
readers                chooses the reader of each format
csv_rows               CSV by RFC 4180
csv_heads              what is no row in CSV: lines above the column names, comments
arrow_files            rows of Parquet, Arrow and ORC files
table_batches          batches of a table's file as blocks, with the columns and types that are wanted
arrow_casts            casts of columns of tables, for `--column-type`
avro_files             rows of Avro container files, block by block
avro_types             Arrow types of Avro's
arrow_rows             rows of Arrow tables as columns of bytes
arrow_forms            which Arrow types have a form as text, as JSON and as a key; others are refused
csv_types              the types of CSV columns, for `--infer-types`
recovery               finds which rows of a load that was killed are in the log
report_page            the report as one HTML page, for `--report`
report                 the counts and times of a load
json_texts             JSON that is no lines: arrays, and documents one after another
json_documents         cuts JSON documents, finds the array that a field has
spread                 counts records by partition and by size
text                   lines and JSON lines, forwarded without parsing
lines                  the line of a text on which a row begins, for messages
manifest_file          finds, reads, replaces and locks the file of a manifest
rows                   a block of rows between a reader and the producer
parquet_footer         compares what a Parquet footer says twice
arrow_ends             proves that an Arrow or Parquet input ends where it seems to end
positions              finds what a transactional id has loaded; one id may be used for many inputs
committed_position     how far a transactional load has come, committed with its rows
manifest               how far a load has come, kept on disk
expected               what a script knows of an input, compared before a load is complete
opening                opens an input: without compression, as UTF-8, with an end that is proven
decompression          decompresses an input up to a proven end
source                 describes one input of a load
table_columns          columns of files with the names and types that their Delta or Iceberg table has
encodings              text in other encodings as UTF-8
pipes                  inputs that can be read only once: stdin, FIFOs, process substitution
prefix                 compares the first bytes of a pipe with those that an earlier run read
errors                 the errors that stop a load, and which of them another try may cure
"""
