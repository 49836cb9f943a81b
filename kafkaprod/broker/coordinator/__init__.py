"""What the broker remembers for clients: groups, committed offsets, transactions. Time is an argument.

`group` is one group's state machine, `group_coordinator` all of them and their timers, `saved_groups` what is written
of them, `offsets` the committed offsets, `offset_log` the log of both. `transaction` has the rules of one transactional
id, `transaction_coordinator` all ids, `transaction_log` their durable form, `markers` what ends transactions in
partitions. The control thread owns all of it.

group_coordinator        all groups of the broker and their timers
consumer_groups          all groups of the consumer protocol and their timers
group_timers             the deadlines of many groups: which of them have something to do at a time
migration                a group with members changes its protocol (KIP-848)
classic_calls            requests of members that use the classic protocol in a group of the consumer protocol
consumer_group           one group of the consumer protocol (KIP-848) as a state machine
assignors                server-side assignors of the consumer protocol: who gets which partitions
consumer_group_config    the options of groups of the consumer protocol, and their bounds
member_timers            when members of a consumer group are late: with a sign of life, or a step of a rebalance
regex_subscriptions      the topics that the regular expressions of a consumer group match
saved_groups             the classic groups in a coordinator's log
topic_regex              regular expressions of clients over names, by RE2
transaction_coordinator  all transactional ids of the broker
markers                  writes transaction markers into the partitions of this broker
coordinators             the two coordinators, as a handler's module names the one that its API belongs to
offset_log               committed offsets and the records of groups on disk: `__consumer_offsets`
classic_records          the record of a classic group in `__consumer_offsets`
consumer_records         the records of consumer groups in `__consumer_offsets`
consumer_member          one member of a consumer group
group                    one group of the classic protocol as a state machine
group_members            the members of a classic group: who they are, who leads
join_phase               how long a classic group waits for its members to join
member                   members of a group and what a group answers them
offsets                  committed offsets of all groups, and the records that carry them through a restart
subscription             what consumers of the classic protocol write about themselves, in JoinGroup and SyncGroup
transaction_log          the states of all transactional ids on disk: `__transaction_state`
internal_log             a coordinator's log: one partition of an internal topic
transaction_records      the records of `__transaction_state`, in Kafka's format
transaction              the state of one transactional id, and what each request changes in it
"""
