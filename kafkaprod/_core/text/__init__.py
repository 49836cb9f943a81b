"""Text: rows to JSON, numbers to digits, and rows cut out of a text.

json_rows, json_text       a table's rows as JSON
number_text, text_output   numbers as text, and the buffer that it is written to
row_splitter               lines, JSON elements and fields in a buffer
csv_splitter               rows of CSV
row_views                  rows of a text without copies
"""
