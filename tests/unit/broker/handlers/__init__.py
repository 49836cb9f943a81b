"""What the handlers answer, by topic, from a broker without sockets: a place, and the handlers that it is about.

test_admin.py           alter_partition_reassignments describe_quorum
test_admin.py           describe_topic_partitions elect_leaders list_partition_reassignments
test_admin.py           unregister_broker update_features
test_authorization.py   authorization describe_acls
test_configs.py         config_resources
test_configs.py         alter_configs altered_options describe_configs incremental_alter_configs list_config_resources
test_consumer_groups.py consumer_group_describe consumer_group_heartbeat offset_delete
test_fetch_of_many.py   fetch_reading fetch_waiting
test_log_directories.py alter_replica_log_dirs describe_log_dirs
test_groups.py          delete_groups describe_groups heartbeat join_group leave_group list_groups sync_group
test_groups.py          committed_offsets offset_commit offset_fetch
test_records.py         fetch list_offsets offset_for_leader_epoch produce
test_mutations.py       mutations
test_refusals.py        refusals
test_topics.py          create_partitions create_topics delete_records delete_topics find_coordinator metadata
test_transactions.py    add_offsets_to_txn add_partitions_to_txn end_txn init_producer_id txn_offset_commit
test_transactions.py    describe_producers describe_transactions list_transactions write_txn_markers
test_transactions.py    produce_transactions transaction_errors
test_tokens.py          create_delegation_token delegation_tokens describe_delegation_token expire_delegation_token
test_tokens.py          renew_delegation_token
test_users.py           alter_client_quotas alter_user_scram_credentials create_acls delete_acls
test_users.py           describe_client_quotas describe_user_scram_credentials
test_watermark.py       fetch list_offsets

Elsewhere, with other brokers or with clients:

tests/unit/broker/server/test_router.py             api_versions
tests/integration/cluster/test_admin.py             describe_cluster
tests/integration/cluster                           replicate_metadata
tests/integration/test_broker_security.py           sasl_authenticate sasl_handshake
tests/integration/test_client_metrics.py            get_telemetry_subscriptions push_telemetry
"""
