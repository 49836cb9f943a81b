"""The bytes of the log: batches, control batches, internal records, files, and the options of a log."""
