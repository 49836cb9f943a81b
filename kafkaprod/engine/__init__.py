"""The engine: from the accumulator to the sockets and back, in one sender thread.

wiring           builds the parts from the configuration
engine           owns the parts; started and stopped by a producer
sender           the loop: drain, send, poll, settle
delivery_rules   what each error of a broker means for a batch
topic_watch      which topics have metadata, and who waits for it
"""
