"""Read an opened input as blocks of rows, whatever format it has.

readers         chooses the reader of each format: of texts here, of tables in arrow_files
csv_rows        CSV by RFC 4180
csv_heads       what is no row in CSV: lines above the column names, comments
arrow_files     rows of Parquet, Arrow and ORC files
table_batches   batches of a table's file as blocks, with the columns and types that are wanted
arrow_casts     casts of columns of tables, for `--column-type`
avro_files      rows of Avro container files, block by block
avro_codecs     decompresses blocks of Avro, up to a limit
avro_types      Arrow types of Avro's
arrow_rows      rows of Arrow tables as columns of bytes
arrow_forms     which Arrow types have a form as text, as JSON and as a key; others are refused
csv_types       the types of CSV columns, for `--infer-types`
json_texts      JSON that is no lines: arrays, and documents one after another
json_documents  finds the array that a field has
text            lines and JSON lines, forwarded without parsing
lines           the line of a text on which a row begins, for messages
rows            a block of rows between a reader and the producer
parquet_pages   looks at the heads of Parquet pages before its library decompresses them
parquet_enums   ENUM columns of Parquet, which are texts
parquet_footer  compares what a Parquet footer says twice
orc_footer      looks at the types of an ORC file before its library does
arrow_ends      proves that an Arrow or ORC input ends where it seems to end
limits          bounds what an input may become: bytes of a row, nodes and depth of a schema
"""
