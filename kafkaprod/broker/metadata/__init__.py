"""The cluster's metadata: a log of Kafka's own records, and the image that they add up to.

follower       a broker's copy of the log, which the controller pushes in slices
image_records  the image as the records that make it again: what a snapshot holds
image          what a prefix of the log adds up to; the same code in controller and brokers
tokens         what a delegation token is made of, and the options that they need
records        the records, byte for byte as Kafka's metadata log has them
log            the metadata log in memory: batches of records, each written by one controller epoch
features       features of a cluster, and the levels of them that this build has
"""
