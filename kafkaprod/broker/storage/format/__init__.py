"""The bytes of the log: control batches, files, and the options of a log.

control_batch     transaction markers: control batches with one record, written by the transaction coordinator
log_config        the topic options that the log obeys, under Kafka's names and with Kafka's defaults
log_files         the names of the files of a partition directory
records           the records inside a batch
"""
