"""Load files into a topic, in columns: `kafkaprod load`.

`finding` (which files, which format) -> `opening` -> `formats` (blocks of rows) -> partitions ->
Producer.send_columns, block by block; `positions` continues a load that was killed without
losing or duplicating a record.

preview                the first records of a load as they would be sent, for `--dry-run`
progress               how a load advances: a bar on a terminal, lines elsewhere
transactional          runs a load in transactions: rows and position are committed together
load                   runs a load from beginning to end
transactional_attempt  sends the rows of a transactional load, transaction by transaction
attempt                one attempt of a load: read on from the manifest's position, send, move the manifest
bad_rows               rows that cannot be sent: stop the load, leave them out, or keep them elsewhere
feed                   blocks of rows from a position on: which are left out, which are sent
producing              makes the producer of a load
finding                finds the inputs that names, patterns, folders and tables stand for
positions              how far a load has come, on disk or in the log, and how it is found after a kill
reports                what a load counts, and the page that shows it
formats                an opened input as blocks of rows, whatever format it has
opening                opens an input: its bytes as text, whole or refused
"""
