"""What clients have set: options of broker and topics, ACLs, quotas, credentials and tokens.

authorized_operations  the bit sets of authorized operations (KIP-430), for clients that may do everything
acl_search             many filters over many ACLs, each entry found once
acls                   access control: who may do what to which resource, decided as Kafka's StandardAuthorizer does
broker_options         the broker's options under Kafka's names: given at the start, or set by clients while it runs
absent_options         options of Apache Kafka's brokers that this one does not have, and what to use in their place
client_metrics         metrics that clients push (KIP-714)
networks               networks as hosts of ACLs
prefixes               prefixes of names, found in steps that do not grow with how many there are
quotas                 quotas of users, client ids and addresses (KIP-546): kept, shown, found for a client
replicated_settings    what clients have set, as records of the metadata
tokens                 delegation tokens as a broker uses them: for logins, and to describe them
scram_store            SCRAM credentials that clients set (KIP-554)
settings               what clients have set that is no data: options, quotas, credentials, ACLs
option_texts           what each option means, in a sentence
topic_options          the options of topics: their types, bounds and the broker's options that hold their defaults
option_types           types of options: what a value may be
"""
