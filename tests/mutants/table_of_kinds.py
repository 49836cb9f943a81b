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
]
