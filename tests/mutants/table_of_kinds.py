"""Planted bugs of four kinds that tests of one case do not see.

the order of syncs  what a power cut leaves
the second time     what is right once: objects used again, a second stall, throttle, failure or answer
what comes later    partitions, directories, brokers and topics that come after an option was applied
small numbers       what is right for two batches, two workers, one error
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

KINDS = [
    # -- the order of syncs --------------------------------------------------------------------------------------------
    Mutant(
        "a manifest takes its name before it is on the disk",
        "loader/positions/manifest_file.py",
        "                os.fsync(descriptor)\n            os.replace(beside, self.path)\n",
        "            os.replace(beside, self.path)\n",
        ("tests/unit/loader/positions/test_manifest_file.py",),
    ),
    Mutant(
        "the checkpoint names what is not on the disk",
        "broker/storage/log/log_dir.py",
        "points = {key: log.log_end_offset if key in copied else log.recovery_point for key, log in both.items()}",
        "points = {key: log.log_end_offset for key, log in both.items()}",
        ("tests/unit/broker/storage/test_power_cuts.py",),
    ),
    Mutant(
        "compacted segments go before the name of what replaces them is on the disk",
        "broker/storage/log/segments.py",
        "        self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)\n"
        "        self._disk.sync_dir(self.directory)\n",
        "        self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)\n",
        ("tests/unit/broker/storage/test_power_cuts.py",),
    ),
    Mutant(
        "the manifest is ahead of the bad rows that are kept",
        "loader/attempt.py",
        "        self._sink.sync(timeout_s)\n"
        "        self._can_checkpoint = True\n"
        "        if self._file is not None:\n"
        "            self._note_pipe()\n"
        "            self._file.write(self._manifest)\n",
        "        if self._file is not None:\n"
        "            self._note_pipe()\n"
        "            self._file.write(self._manifest)\n"
        "        self._sink.sync(timeout_s)\n"
        "        self._can_checkpoint = True\n",
        ("tests/unit/loader/test_bad_rows_after_power_cuts.py",),
    ),
    Mutant(
        "the directories of new partitions are not on the disk",
        "broker/cluster/own_topics.py",
        "                yield\n            self._log_dirs.sync()\n",
        "                yield\n",
        ("tests/unit/broker/cluster/test_topics_after_power_cuts.py",),
    ),
    # -- the second time -----------------------------------------------------------------------------------------------
    Mutant(
        "each drain begins with the first partition after an update of the metadata",
        "_core/requests/drain.pyx",
        "node.start = (<NodeQueues>old).start % node.partition_count",
        "node.start = 0",
        ("tests/unit/_core/requests/test_drain.py",),
    ),
    Mutant(
        "bytes of an answer that a quota withheld count",
        "broker/server/throttling.py",
        "            self._use(table, CONSUMER_BYTES, request, -answer_bytes, now_ms)\n",
        "",
        ("tests/unit/broker/server/test_throttling.py",),
    ),
    Mutant(
        "a second throttle that is shorter ends the first",
        "net/node_state.py",
        "self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle_ms)",
        "self.throttled_until_ms = now_ms + throttle_ms",
        ("tests/unit/net/test_pool.py",),
    ),
    Mutant(
        "a second failure of a log raises what the next start believes",
        "broker/storage/log/fence.py",
        "self.recovery_limit = offset if self.recovery_limit is None else min(self.recovery_limit, offset)",
        "self.recovery_limit = offset",
        ("tests/unit/broker/storage/log/test_fence.py",),
    ),
    Mutant(
        "each token ends when the first one did",
        "security/token_cache.py",
        "            self._ends_at_s = fetched_at_s + token.lifetime_s",
        "            self._ends_at_s = self._ends_at_s or fetched_at_s + token.lifetime_s",
        ("tests/unit/security/test_token_cache.py",),
    ),
    Mutant(
        "dropped lines are reported again",
        "log_lines.py",
        "self._reported_count += count",
        "self._reported_count = count",
        ("tests/unit/test_log_lines.py",),
    ),
    Mutant(
        "a replica that waited for the metadata once proposes no more",
        "broker/replication/partition.py",
        "        self.proposal = None\n        self.is_waiting_for_metadata = False\n",
        "        self.proposal = None\n",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "the second outage of a broker goes on with the first one's backoff",
        "net/pool.py",
        "state.failure_count, state.last_failure = 0, None",
        "state.last_failure = None",
        ("tests/unit/net/test_pool.py",),
    ),
    Mutant(
        "a wish for a log directory outlives its partition",
        "broker/storage/log/log_dirs.py",
        "        self._wishes.pop(topic_partition, None)\n        return log",
        "        return log",
        ("tests/unit/broker/storage/log/test_log_dirs.py",),
    ),
    Mutant(
        "a client that starts over a second time forgets who failed",
        "net/known_nodes.py",
        "        self._failing.update((node_id, state) for node_id, state in self.states.items() "
        "if state.failure_count)",
        "        self._failing = self._failing or {node_id: state for node_id, state in "
        "self.states.items() if state.failure_count}",
        ("tests/unit/net/test_known_nodes.py",),
    ),
    # -- what comes later ----------------------------------------------------------------------------------------------
    Mutant(
        "partitions that a topic gets later have the producer's codec",
        "_core/queues/topic_queues.pyx",
        "p.codec = self.batching.codec",
        "p.codec = 0 if self.allocated_count else self.batching.codec",
        ("tests/unit/_core/queues/test_topic_batching.py",),
    ),
    Mutant(
        "recovery leaves leader epochs below the log's start",
        "broker/storage/recovery/recovery.py",
        "    recovery.epochs.truncate_from_start(start)\n",
        "",
        ("tests/unit/broker/storage/recovery/test_recovery.py",),
    ),
    Mutant(
        "partitions that come to a node later grow beyond what its path carries",
        "_core/requests/drain.pyx",
        "            _limit_node(node, most_bytes, is_measured)\n\n    def limit_path",
        "            if node.node_id not in self._path_limits:\n"
        "                _limit_node(node, most_bytes, is_measured)\n"
        "\n"
        "    def limit_path",
        ("tests/unit/_core/queues/test_growing_batches.py",),
    ),
    Mutant(
        "partitions that are added later have the broker's options",
        "broker/cluster/own_topics.py",
        "            config = parse_properties(topic.properties, self._defaults)\n            indexes",
        "            config = self._defaults\n            indexes",
        ("tests/unit/broker/cluster/test_own_topics.py",),
    ),
    Mutant(
        "a broker that comes back counts from the start",
        "net/known_nodes.py",
        "state = self._failing_at(node) or NodeState(node, self.metrics.setdefault(node_id, NodeCounters()))",
        "state = self._failing_at(node) or NodeState(node, self.metrics.pop(node_id, None) and "
        "NodeCounters() or self.metrics.setdefault(node_id, NodeCounters()))",
        ("tests/unit/net/test_known_nodes.py",),
    ),
    # -- small numbers -------------------------------------------------------------------------------------------------
    Mutant(
        "what workers made of five or more batches goes to others",
        "_core/requests/batch_compressor.pyx",
        "return list(self.workers.map(_compressed, pairs))",
        "return list(self.workers.map(_compressed, pairs[len(pairs) // 5 and 4 :] + pairs[: len(pairs) // 5 and 4]))",
        ("tests/unit/_core/requests/test_drain.py",),
    ),
    Mutant(
        "a throttle leaves requests in flight the time they had",
        "net/node_state.py",
        "            self.connection.protocol.extend_deadlines(throttle_ms)",
        "            pass",
        ("tests/unit/net/test_pool.py",),
    ),
    Mutant(
        "a disk that has become read-only is no failure of its log directory",
        "broker/storage/directory_health.py",
        "errno.EROFS, ",
        "",
        ("tests/unit/broker/storage/test_directory_health.py",),
    ),
    Mutant(
        "the watermark waits for two followers at most",
        "broker/replication/partition.py",
        "        for member in self._watermark_members():",
        "        for member in self._watermark_members()[:2]:",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "one slow follower leaves the ISR at a time",
        "broker/replication/partition.py",
        "        if slow:\n",
        "        slow = set(sorted(slow)[:1])\n        if slow:\n",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "a snapshot of the metadata has 2,000 records at most",
        "broker/controller/snapshot_file.py",
        "range(0, len(records), _BATCH_RECORDS)",
        "range(0, min(len(records), 2 * _BATCH_RECORDS), _BATCH_RECORDS)",
        ("tests/unit/broker/controller/test_snapshot_file.py",),
    ),
    Mutant(
        "the first 16 logs of a directory are closed",
        "broker/storage/log/upkeep.py",
        "list(pool.map(PartitionLog.close, logs))",
        "list(pool.map(PartitionLog.close, logs[:_CLOSING_THREADS]))",
        ("tests/unit/broker/storage/log/test_log_dir.py",),
    ),
    Mutant(
        "a proposal that met a newer leader is sent again",
        "broker/replication/partition.py",
        "        ErrorCode.NEW_LEADER_ELECTED,\n",
        "",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "two failed bootstrap servers are taken for all",
        "net/known_nodes.py",
        "return len(self.bootstrap_failures()) == len(self._bootstrap)",
        "return len(self.bootstrap_failures()) >= min(len(self._bootstrap), 2)",
        ("tests/unit/net/test_known_nodes.py",),
    ),
    Mutant(
        "one of the failed log directories is named",
        "broker/storage/log/log_dirs.py",
        "for each in self._directories[1:] if each.environment.health.failure is not None)",
        "for each in self._directories[1:2] if each.environment.health.failure is not None)",
        ("tests/unit/broker/storage/log/test_log_dirs.py",),
    ),
    Mutant(
        "one deleted partition is purged",
        "broker/storage/log/directory_files.py",
        "            disk.rmdir(directory)\n",
        "            disk.rmdir(directory)\n            return\n",
        ("tests/unit/broker/storage/log/test_log_dir.py",),
    ),
    Mutant(
        "the least loaded broker is one of the first two",
        "net/node_state.py",
        "return min(ready, key=_first)[1]",
        "return min(ready[:2], key=_first)[1]",
        ("tests/unit/net/test_known_nodes.py",),
    ),
    Mutant(
        "changed options reach two partitions",
        "broker/cluster/own_topics.py",
        "        for partition in topic.partitions:\n            if partition.has_log:",
        "        for partition in topic.partitions[:2]:\n            if partition.has_log:",
        ("tests/unit/broker/cluster/test_own_topics.py",),
    ),
]
