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
]
