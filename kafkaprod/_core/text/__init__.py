"""Text: rows to JSON, numbers to digits, and rows cut out of a text.

json_rows     a table's rows as JSON
avro_rows     rows as Avro records, from Arrow arrays, without the GIL
json_text     strings and bytes as JSON text
number_text   numbers as text
row_splitter  lines, JSON elements and fields in a buffer
csv_splitter  rows of CSV
row_views     rows of a text without copies
text_output   the buffer that text is written to
"""
