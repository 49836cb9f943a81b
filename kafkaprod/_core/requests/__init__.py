"""Batches on their way: drain, request, response, settlement.

journal_pass      the entries of batches that are written to a journal before they are sent
restore           batches whose records are in a journal alone
drain             which batches go into a node's next request
node_path         what the way to a node carries: bytes in flight, rate, answer time
batch_compressor  compresses a request's batches
produce_response  the fields of a produce response
produce_request   the bytes of a produce request
split             cuts a batch that is too large for the broker
settlement        gives each batch its outcome, or puts it back into its queue
"""
