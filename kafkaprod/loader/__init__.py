"""Load files into a topic, in columns: `kafkaprod load`.

inputs (which files, which format) -> readers (blocks of rows) -> partitions -> Producer.send_columns, block by block;
`manifest` and `recovery` continue a load that was killed without losing or duplicating a record.
"""
