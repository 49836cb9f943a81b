"""The cluster's metadata: a log of Kafka's own records, and the image that they add up to.

follower  a broker's copy of the log, which the controller pushes in slices
image     brokers, topics, partitions and options after a prefix of the log; the same code in controller and brokers
tokens    what a delegation token is made of, and the options that they need
records   the records, byte for byte as Kafka's metadata log has them
log       the metadata log in memory: batches of records, each written by one controller epoch and applied as a whole
features  features of a cluster, and the levels of them that this build has
"""
