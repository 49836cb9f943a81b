# Nothing here is for Python: batches are C structs, seen through settlement.BatchRef.
