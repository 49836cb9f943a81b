"""Find the inputs that names, patterns, folders and tables stand for, and recognize what they are.

inputs          finds the inputs of a load, and recognizes what they are
paths           finds the files that names, patterns and directories stand for; refuses tables with a log
object_folders  the objects of a store that an address, a folder or a pattern stands for
delta_tables    the files of one version of a Delta table
iceberg_tables  the files of one snapshot of an Iceberg table
folders         folders as tables: their columns, and names that are hidden
expected        what a script knows of an input, compared before a load is complete
"""
