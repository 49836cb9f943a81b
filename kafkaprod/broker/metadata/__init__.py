"""The cluster's metadata: a log of Kafka's own records, and the image that they add up to.

records   the records, byte for byte as Kafka's metadata log has them
image     brokers, topics, partitions and options after a prefix of the log; the same code in controller and brokers
follower  a broker's copy of the log, which the controller pushes in slices
"""
