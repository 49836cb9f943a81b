"""The engine: from the accumulator to the sockets and back, in one sender thread.

wiring           builds the parts from the configuration
engine           owns the parts; started and stopped by a producer
loop             the sender thread: drain, send, poll, settle
answers          settles the produce requests that have ended
identity         producer id and epoch; transactions implement it, too
upkeep           metadata, expiry, failed connections, metrics
flushes          callers of flush() and the batches they wait for
delivery_rules   what each error of a broker means for a batch
topic_watch      where callers wait for the metadata of a topic
transactions     the transactions of a producer with a transactional id
"""
