"""The engine: from the accumulator to the sockets and back, in one sender thread.

wiring           builds the parts from the configuration
engine           owns the parts; started and stopped by a producer
loop             the sender thread: drain, send, poll, settle
answers          what becomes of a produce request that has ended
identity         producer id and epoch; where transactions plug in
upkeep           metadata, expiry, failed connections, metrics
flushes          callers of flush() and the batches they wait for
settings         the options of the sender thread
delivery_rules   what each error of a broker means for a batch
topic_watch      which topics have metadata, and who waits for it
"""
