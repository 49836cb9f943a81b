"""What the broker knows and decides: topics, leaders, producer ids, upkeep.

control                 the control plane: one thread for the handlers of groups, topics, offsets and transactions
leadership              who leads a partition: what clients believe (KIP-320), and changes on purpose
maintenance             what the log needs from time to time: syncs, checkpoints, retention, compaction
mover                   moves partitions between log directories
clustered               the standing of a broker in a cluster of several processes
member                  a broker's part in a cluster: registration, metadata, replicas, links to the others
coordination            which broker of a cluster coordinates groups, and which transactions
follower_fetches        fetches of followers: answered when there is news
fetch_wire              what a replica fetcher asks and gets as Kafka's Fetch and ListOffsets
marker_sender           sends the markers of decided transactions to the leaders of their partitions
coordinator_log         the log of a coordinator in a cluster, and what waits for its replicas
nodes                   the brokers and replicas that clients get to know: those in the metadata
transaction_partitions  adds partitions to a transaction at its coordinator, or asks whether they are in it
membership              what the parts of a broker in a cluster use of its member
replica_directories     in which log directories replicas are, and which have failed
replicated_topics       the topics of a broker in a cluster, and their replicas
marker_replication      transaction markers in a cluster: answered when all in-sync replicas have them
produce_replication     what a produce request with acks=all waits for in a cluster
broker                  the broker as the handlers see it: topics, groups, offsets, ids
producer_ids            producer ids that never repeat, not even after a crash
alone                   the standing of a broker alone, a cluster of one: it decides itself, and at once
former_files            the files in which a broker alone kept its metadata before it had a log for it
own_topic_requests      CreateTopics and CreatePartitions of a broker alone
forwarded_topics        requests about topics: checked here, carried out by the controller
own_topics              the topics of a broker alone
own_controller          the controller of a broker alone, which is a cluster of one
standing                a broker's standing in its cluster: what one alone does by itself
topics                  the topics that a broker knows: the metadata image as the table that handlers read
"""
