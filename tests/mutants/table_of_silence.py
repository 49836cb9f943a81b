"""Planted bugs that no test noticed when they were planted from outside; each has its test now."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SILENT = [
    Mutant(
        "consumers read beyond the high watermark",
        "broker/handlers/fetch_reading.py",
        "bound = data.last_stable_offset if is_committed else data.high_watermark",
        "bound = data.last_stable_offset if is_committed else log.log_end_offset",
        ("tests/unit/broker/handlers/test_watermark.py",),
    ),
    Mutant(
        "a record at the last stable offset is listed",
        "broker/handlers/list_offsets.py",
        "found.offset >= end_offset",
        "found.offset > end_offset",
        ("tests/unit/broker/handlers/test_watermark.py",),
    ),
    Mutant(
        "any older epoch may repeat the end of a transaction",
        "broker/coordinator/transaction.py",
        "given.epoch == now.epoch - 1)",
        "given.epoch < now.epoch)",
        ("tests/unit/broker/coordinator/test_transaction.py",),
    ),
    Mutant(
        "a follower's high watermark goes back",
        "broker/replication/fetcher.py",
        "max(log.high_watermark, min(answer.high_watermark, log.end_offset))",
        "min(answer.high_watermark, log.end_offset)",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "a leader lets a follower of another registration join",
        "broker/replication/partition.py",
        "            and state.broker_epoch == self.eligibility.broker_epoch(follower)\n",
        "",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "a partition that an answer leaves out was refused",
        "engine/answers.py",
        "ErrorCode.NETWORK_EXCEPTION, maybe_persisted=True), now_ms)\n        self._upkeep",
        "ErrorCode.NETWORK_EXCEPTION, maybe_persisted=False), now_ms)\n        self._upkeep",
        ("tests/unit/engine/test_loop_waits_and_order.py",),
    ),
    Mutant(
        "six batches are out, and the broker remembers five",
        "_core/queues/sequences.pxd",
        "BROKER_WINDOW = 5 ",
        "BROKER_WINDOW = 6 ",
        ("tests/unit/_core/queues/test_sequences.py",),
    ),
    Mutant(
        "a wake-up between the read and its note is lost",
        "_core/machine/waking.pyx",
        """        if self._reader >= 0 and self._descriptor >= 0:
            read(self._reader, unread, MOST_UNREAD)
        mutex_lock(&self._lock)
        self._is_pending = False
        mutex_unlock(&self._lock)
""",
        """        mutex_lock(&self._lock)
        self._is_pending = False
        mutex_unlock(&self._lock)
        if self._reader >= 0 and self._descriptor >= 0:
            read(self._reader, unread, MOST_UNREAD)
""",
        ("tests/unit/_core/machine/test_waking.py",),
    ),
    Mutant(
        "acks=all is answered one record early",
        "broker/replication/partition.py",
        "if self.log.high_watermark < end_offset:",
        "if self.log.high_watermark < end_offset - 1:",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "an append of an older epoch is acknowledged",
        "broker/replication/partition.py",
        "if not self.is_leader or self._leader_epoch != leader_epoch:",
        "if not self.is_leader:",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "any answer clears the request in flight",
        "broker/replication/fetcher.py",
        """        if request is not self._in_flight:
            return
        self._in_flight = None
        if answer.error""",
        "        self._in_flight = None\n        if answer.error",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "older metadata is applied",
        "broker/replication/partition.py",
        "        if image.partition_epoch < self._partition_epoch:\n            return False",
        "        if image.partition_epoch < -1:\n            return False",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "a leader keeps its proposal over new metadata",
        "broker/replication/partition.py",
        "        self.committed_isr = image.isr\n        self.proposal = None\n",
        "        self.committed_isr = image.isr\n",
        ("tests/unit/broker/replication/test_partition.py",),
    ),
    Mutant(
        "a moved partition wakes one follower only",
        "broker/replication/fetch_sessions.py",
        "                if key in session.standing:\n                    session.moved[key] = None\n",
        """                if key in session.standing:
                    session.moved[key] = None
                    break
""",
        ("tests/unit/broker/replication/test_fetch_sessions.py",),
    ),
    Mutant(
        "a lost proposal is not sent again",
        "broker/replication/isr_requests.py",
        '''        """The request or its answer was lost: the proposals stay, and are sent again."""
        self._in_flight = None
''',
        '''        """The request or its answer was lost: the proposals stay, and are sent again."""
        self._in_flight = None
        self._proposing.clear()
''',
        ("tests/unit/broker/replication/test_fetch_sessions.py",),
    ),
    Mutant(
        "failed replicas are not noticed by followers",
        "broker/replication/replica_manager.py",
        "                self.offline.add(key)\n                self.sessions.note_moved((key,))",
        "                self.offline.add(key)",
        ("tests/unit/broker/replication/test_fetch_sessions.py",),
    ),
    Mutant(
        "a leader out of the ISR stays",
        "broker/controller/elections.py",
        "if partition.leader in isr and can_lead(partition.leader):",
        "if can_lead(partition.leader):",
        ("tests/unit/broker/controller/test_elections.py",),
    ),
    Mutant(
        "a replica that the ISR counts on is made again",
        "broker/storage/log/log_dirs.py",
        "(directory is None or is_old or topic_partition in self._left_copies)",
        "(directory is None or topic_partition in self._left_copies)",
        ("tests/unit/broker/storage/log/test_log_dirs.py",),
    ),
    Mutant(
        "any fenced broker's replica had a log",
        "broker/cluster/replicated_topics.py",
        "return is_fenced and broker_id in partition.isr and partition.partition_epoch > 0",
        "return is_fenced and broker_id in partition.isr",
        ("tests/unit/broker/cluster/test_replicated_topics.py",),
    ),
    Mutant(
        "of two topics the one in the first directory is kept",
        "broker/storage/log/settling.py",
        "return logs[max(logs, key=lambda log: _made_ns(log.directory))]",
        "return next(iter(logs.values()))",
        ("tests/unit/broker/storage/log/test_log_dirs.py",),
    ),
    Mutant(
        "of two logs the longer one is kept",
        "broker/storage/log/settling.py",
        "return log.damage is None, log.latest_epoch, log.log_end_offset,",
        "return log.damage is None, 0, log.log_end_offset,",
        ("tests/unit/broker/storage/log/test_log_dirs.py",),
    ),
    Mutant(
        "a newcomer's address does not count where its listener is full",
        "broker/server/admission.py",
        "        if self._by_host[host] >= limits.max_connections_per_ip:",
        "        if self._by_host[host] >= limits.max_connections_per_ip and self._by_listener[listener] < most:",
        ("tests/unit/broker/server/test_admission.py",),
    ),
]
