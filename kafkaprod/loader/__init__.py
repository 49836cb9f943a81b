"""From files to a topic, in columns: `kafkaprod load`.

inputs (which files, which format) -> readers (blocks of rows) -> partitions -> Producer.send_columns, block by block;
`manifest` and `recovery` make a load that was killed go on with nothing lost and nothing twice.
"""
