"""Planted bugs: each changes one place of the product, and the tests named beside it must fail.

A mistake that no test notices is worse than a missing test: it shows what the suite does not see. Add a row for each
bug that was found from outside, and for each rule that is easy to get wrong. The text to replace occurs once.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.table_of_edges import EDGES
from tests.mutants.table_of_kinds import KINDS
from tests.mutants.table_of_rooms import ROOMS
from tests.mutants.table_of_silence import SILENT

MUTANTS = [
    # -- batches, drain, settlement ------------------------------------------------------------------------------------
    Mutant(
        "a split drops that its records may be in the log",
        "_core/requests/split.pyx",
        "child.maybe_persisted = b.maybe_persisted",
        "child.maybe_persisted = False",
        ("tests/unit/_core/requests", "tests/unit/engine"),
    ),
    Mutant(
        "a split numbers its second batch like the first",
        "_core/requests/split.pyx",
        "child.base_sequence = -1 if b.base_sequence < 0 else advance_sequence(b.base_sequence, index)",
        "child.base_sequence = b.base_sequence",
        ("tests/unit/_core/requests/test_split.py",),
    ),
    Mutant(
        "a requeued batch forgets that it may be in the log",
        "_core/requests/settlement.pyx",
        "b.maybe_persisted = b.maybe_persisted or maybe_persisted",
        "b.maybe_persisted = maybe_persisted",
        ("tests/unit/_core/requests", "tests/unit/engine"),
    ),
    Mutant(
        "a batch that may be in the log gets another sequence",
        "_core/queues/sequences.pxd",
        "if b.maybe_persisted or b.base_sequence < 0:",
        "if b.base_sequence < 0:",
        ("tests/unit/_core/queues/test_sequences.py", "tests/unit/_core/requests"),
    ),
    Mutant(
        "error -1 counts as success",
        "_core/requests/produce_response.pyx",
        "if get_i16(c.at + 4) != 0:",
        "if get_i16(c.at + 4) > 0:",
        ("tests/unit/_core/requests/test_produce_response.py",),
    ),
    Mutant(
        "an answer is taken twice for one batch",
        "_core/requests/produce_response.pyx",
        "    if written[i].is_set:\n        return -1\n",
        "",
        ("tests/unit/_core/requests/test_produce_response.py", "tests/property/test_produce_response_parsers.py"),
    ),
    Mutant(
        "offsets of a block leave out the index in the batch",
        "results/block.py",
        "+ (batch.base_offset + first)",
        "+ batch.base_offset",
        ("tests/unit/_core/queues/test_completion.py",),
    ),
    Mutant(
        "each drain begins with the same partition",
        "_core/requests/drain.pyx",
        "node.start = (node.start + 1) % node.partition_count",
        "node.start = 0",
        ("tests/unit/_core/requests/test_drain.py",),
    ),
    Mutant(
        "the estimated compression ratio never falls",
        "_core/requests/batch_compressor.pyx",
        "ratio[0] = max(ratio[0] - 0.005, observed)",
        "pass",
        ("tests/unit/_core/requests/test_drain.py",),
    ),
    Mutant(
        "all codecs of a producer have one compression ratio",
        "_core/requests/drain.pyx",
        "and estimated_size(b, ratios[p.codec]) > room",
        "and estimated_size(b, ratios[0]) > room",
        ("tests/unit/_core/queues/test_topic_batching.py",),
    ),
    Mutant(
        "the shortest beginning of a topic's name counts",
        "config/topic_options.py",
        "-len(pattern), pattern",
        "len(pattern), pattern",
        ("tests/unit/config/test_topic_options.py",),
    ),
    Mutant(
        "murmur2 leaves out the last three bytes",
        "_core/records/murmur2.pxd",
        "    if length > 0:\n        tail = length",
        "    if length > 3:\n        tail = length",
        ("tests/unit/_core/records/test_murmur2.py", "tests/unit/_core/queues/test_partitioner.py"),
    ),
    Mutant(
        "two-byte varints are one bit short",
        "_core/records/varint.pxd",
        "    if u < 0x4000:\n        p[0]",
        "    if u < 0x8000:\n        p[0]",
        ("tests/unit/_core/records", "tests/property/test_core_records.py"),
    ),
    # -- the engine's decisions ----------------------------------------------------------------------------------------
    Mutant(
        "too large is final also for several records",
        "engine/delivery_rules.py",
        "if code == ErrorCode.MESSAGE_TOO_LARGE and facts.record_count > 1:",
        "if code == ErrorCode.MESSAGE_TOO_LARGE and facts.record_count > 10:",
        ("tests/unit/engine/test_delivery_rules.py",),
    ),
    Mutant(
        "a repeated sequence counts as a failure",
        "engine/delivery_rules.py",
        "if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:",
        "if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and facts.attempts > 5:",
        ("tests/unit/engine/test_delivery_rules.py",),
    ),
    Mutant(
        "an unknown producer id is renumbered although the batch may be in the log",
        "engine/delivery_rules.py",
        "if code in RENUMBERING and not facts.maybe_persisted:",
        "if code in RENUMBERING:",
        ("tests/unit/engine/test_delivery_rules.py",),
    ),
    Mutant(
        "a lost leadership counts as a definite no",
        "engine/delivery_rules.py",
        "        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # leadership",
        "        # leadership",
        ("tests/unit/engine",),
    ),
    Mutant(
        "one retry more than allowed",
        "engine/delivery_rules.py",
        "has_tries = facts.attempts < retries",
        "has_tries = facts.attempts <= retries",
        ("tests/unit/engine/test_delivery_rules.py",),
    ),
    Mutant(
        "the backoff grows beyond its maximum",
        "retry.py",
        "return min(round(delay * spread), self.max_ms)",
        "return round(delay * spread)",
        ("tests/unit/test_retry.py",),
    ),
    # -- the broker's log ----------------------------------------------------------------------------------------------
    Mutant(
        "an epoch's end is the next one's second record",
        "broker/storage/recovery/leader_epochs.py",
        "return self.entries[above - 1].epoch, self.entries[above].start_offset",
        "return self.entries[above - 1].epoch, self.entries[above].start_offset + 1",
        ("tests/unit/broker/storage/recovery/test_leader_epochs.py",),
    ),
    Mutant(
        "an epoch is known twice",
        "broker/storage/recovery/leader_epochs.py",
        "if epoch < 0 or (self.entries and epoch == self.latest_epoch):",
        "if epoch < 0:",
        ("tests/unit/broker/storage/recovery/test_leader_epochs.py",),
    ),
    # -- controller and replication ------------------------------------------------------------------------------------
    Mutant(
        "an ISR of the last member is emptied",
        "broker/controller/elections.py",
        "if member != leaving) or partition.isr",
        "if member != leaving)",
        ("tests/unit/broker/controller",),
    ),
    Mutant(
        "a fenced replica leads",
        "broker/controller/elections.py",
        "return broker_id != leaving and is_active(broker_id)",
        "return broker_id != leaving",
        ("tests/unit/broker/controller",),
    ),
    Mutant(
        "a leader behind the controller proposes",
        "broker/controller/partitions.py",
        "if proposal.partition_epoch < partition.partition_epoch:",
        "if proposal.partition_epoch < partition.partition_epoch - 1:",
        ("tests/unit/broker/controller",),
    ),
    Mutant(
        "a member of another registration joins",
        "broker/controller/partitions.py",
        "broker.is_active and broker_epoch in (-1, broker.epoch)",
        "broker.is_active",
        ("tests/unit/broker/controller",),
    ),
    Mutant(
        "a broker serves before it knows its registration",
        "broker/controller/registrations.py",
        "not request.want_fence and offset > broker.epoch:",
        "not request.want_fence and offset >= broker.epoch:",
        ("tests/unit/broker/controller",),
    ),
    Mutant(
        "the same process gets a new epoch",
        "broker/controller/registrations.py",
        "BrokerRegistrationResponse(broker_epoch=known.epoch)",
        "BrokerRegistrationResponse(broker_epoch=known.epoch + 1)",
        ("tests/unit/broker/controller",),
    ),
    Mutant(
        "divergence is looked for before the log's start",
        "broker/replication/partition.py",
        "if request.offset < self.log.log_start_offset:",
        "if request.offset < 0:",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "a pending member does not hold the watermark",
        "broker/replication/partition.py",
        "return frozenset((*self.committed_isr, *(member.broker_id for member in self.proposal.new_isr_with_epochs)))",
        "return frozenset(self.committed_isr)",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "a follower joins below the epoch's start",
        "broker/replication/partition.py",
        "            and state.end_offset >= self.epoch_start_offset  # KAFKA-7128\n",
        "",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "an idle follower leaves the ISR",
        "broker/replication/partition.py",
        "            and self.followers[member].end_offset != self.log.end_offset\n",
        "",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "the metadata drops a proposal that follows an answer",
        "broker/replication/partition.py",
        "            self.image = image  # known from an answer: a proposal made since then is still pending\n"
        "            return False\n",
        "            self.proposal = None\n            return False\n",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "batches of a newer epoch are appended",
        "broker/replication/fetcher.py",
        "if batch.leader_epoch > question.leader_epoch:",
        "if batch.leader_epoch > question.leader_epoch + 100:",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "late answers are applied",
        "broker/replication/fetcher.py",
        "if question.leader_epoch != fetched.leader_epoch:",
        "if question.leader_epoch > fetched.leader_epoch:",
        ("tests/unit/broker/replication",),
    ),
    Mutant(
        "an older controller is obeyed",
        "broker/metadata/follower.py",
        "if sent.controller_epoch < self.controller_epoch:",
        "if sent.controller_epoch < 0:",
        ("tests/unit/broker/metadata",),
    ),
    Mutant(
        "what is not committed is applied",
        "broker/metadata/follower.py",
        "if batch.end_offset > commit_offset:",
        "if batch.base_offset > commit_offset:",
        ("tests/unit/broker/metadata",),
    ),
    *EDGES,
    *SILENT,
    *KINDS,
    *ROOMS,
]
