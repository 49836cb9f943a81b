"""The engine: from the accumulator to the sockets and back, in one sender thread.

transaction_calls  the transaction calls of a producer as steps, for threads and event loops
host               runs an engine in its thread until its producer, the process or the program ends
engine             owns the parts; started and stopped by a producer
adoption           sends what is left in slots of a spool that no producer has
wiring             builds the parts from the configuration
loop               the sender thread: drain, send, poll, settle
identity_requests  sends the requests that the identity wants
sending            gives nodes what is ready for them
answers            settles the produce requests that have ended
upkeep             metadata, expiry, failed connections, metrics
flushes            callers of flush() and the batches they wait for
endings            nodes that end the connection at large requests
delivery_rules     what each error of a broker means for a batch
purges             calls of purge(), which fail records that have no outcome yet
parking            records that wait for their topic's metadata, of callers that must not wait
topic_watch        where callers wait for the metadata of a topic
outages            what is refused for long, and its line in the log
batchings          how the batches of each topic are made
transactions       the transactions of a producer with a transactional id
steps              waits as generators, for threads and event loops
telemetry          pushes the producer's metrics to brokers that request them (KIP-714)
paths              what the way to each node carries, by its answers
node_states        which nodes are slow or sick
memory_shares      how much memory each node's records may hold
identity           producer id and epoch; transactions implement it, too
"""
