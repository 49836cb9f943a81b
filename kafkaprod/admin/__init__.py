"""Asking a cluster: topics, options, offsets, records; for the commands and the loader. Not a consumer.

cluster              questions to a cluster on a connection of their own
reading              reads partitions batch by batch: for checks, recovery and `tail`
transaction_checkup  finds what will keep a transactional producer from working
checkup              find what will go wrong between a producer's configuration and a cluster
groups               offsets that groups have committed, and what a user may do with a group
transactions         transactions of a cluster: list, describe, find those that hang, abort
producer_ids         a new producer id of a cluster
coordinators         find the broker that coordinates a group or a transactional id
topics               topics: list, create and delete them, read their options and the ends of their logs
client               a client that sends one request after the other and waits for each answer
"""
