"""Open an input: its bytes as text, whole or refused; and the errors that stop a load.

opening        opens an input: without compression, as UTF-8, with an end that is proven
decompression  decompresses an input up to a proven end
source         describes one input of a load
table_columns  columns of files with the names and types that their Delta or Iceberg table has
archives       zip archives, each opened once for all of its members
encodings      text in other encodings as UTF-8
pipes          inputs that can be read only once: stdin, FIFOs, process substitution
prefix         compares the first bytes of a pipe with those that an earlier run read
remote         objects of other machines, by their addresses
errors         the errors that stop a load, and which of them another try may cure
"""
