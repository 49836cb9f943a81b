"""Batches on their way: drain, request, response, settlement.

drain             which batches go into a node's next request
node_path         what the way to a node carries: bytes in flight, rate, answer time
batch_compressor  compresses a request's batches
produce_response  the fields of a produce response
produce_request   the bytes of a produce request
split             cuts a batch that is too large for the broker
settlement        gives each batch its outcome, or puts it back into its queue
"""
