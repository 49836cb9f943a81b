"""The compiled heart: records in, sealed batches out. Imports only kafkaprod.errors and itself; never waits."""
