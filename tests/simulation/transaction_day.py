"""Transactions: programs that write them, coordinators that decide them, and consumers of what is committed.

The faults are some of the usual ones, and those of programs: one ends in the middle of its transaction, and perhaps
begins again; another instance begins beside it; a member of a group ends, or stops for a while. Some come at the
moments that matter (`moments`). There are groups of the classic protocol (`grouping`) and of the consumer protocol
(`consumer_side`). Times that the product means for real clusters are as short as those of this one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import cast

from kafkaprod.broker.cluster import coordinator_log, marker_replication
from kafkaprod.broker.controller import channels
from kafkaprod.broker.coordinator.coordinators import GROUPS, TRANSACTIONS
from kafkaprod.broker.coordinator.group import Group
from kafkaprod.broker.metadata.features import GROUP_VERSION, TRANSACTION_VERSION
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication import fetcher, isr_requests, lifecycle
from kafkaprod.protocol.error_codes import ErrorCode
from tests.simulation.batch_logs import BatchLog
from tests.simulation.checker import ViolationError
from tests.simulation.committed_reading import BatchConsumer, CommittedConsumer
from tests.simulation.consumer_side import NAMES_OF_PROCESSORS, ConsumerSide
from tests.simulation.coordinating import INTERNAL_TOPICS, CoordinatingNode
from tests.simulation.grouping import GroupLedger, GroupMember, GroupReader
from tests.simulation.ledger import Ledger
from tests.simulation.moments import Moments
from tests.simulation.nodes import BrokerNode
from tests.simulation.processing import Processor
from tests.simulation.rules import replaced
from tests.simulation.run import CHECK_EACH_EVENTS, REST_MS, STARTS_MS, Outcome, Simulation
from tests.simulation.transacting import OffsetsReader, TransactionalNode

TOPIC = "payments"
MOST_INSTANCES = 8
REPLICAS_MS = 400
HEARTBEAT_TIMEOUT_MS = 120  # of a session of 300
PEER_TIMEOUT_MS = 400


class TransactionDay(Simulation):
    """See the module docstring.

    Attributes:
        ledger: What programs know of their transactions.
        programs: All instances.
    """

    node_type: type[BrokerNode] = CoordinatingNode
    topics: Mapping[str, int] = MappingProxyType({TOPIC: 2, **dict.fromkeys(INTERNAL_TOPICS, 1)})

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.ledger = Ledger(self.world, self._is_lossy)
        self.programs: list[TransactionalNode] = []
        self.consumers: list[CommittedConsumer] = []
        self.offsets_reader: OffsetsReader | None = None
        self.groups = GroupLedger(self._is_lossy)
        self.members: list[GroupMember] = []
        self.moments = Moments(self)
        self.consumer_side = ConsumerSide(self, self._is_lossy)
        chance = self.world.random
        self.controller.levels = {TRANSACTION_VERSION: chance.choice((0, 1, 2, 2)), GROUP_VERSION: 1}
        max_batches = chance.choice((3, 100, 100))
        for broker in self.brokers.values():
            broker.settings.max_batches = max_batches
        usual = [kind for kind in self._kinds if kind.__name__ != "_recreate_topic"][:4] or [self._crash]
        own = [self._replace_program, self._crash_program, self._crash_member, self._pause_member]
        own += self.consumer_side.kinds
        self._kinds = [*usual, *chance.sample(own, chance.randint(2, len(own)))]

    def run(self) -> Outcome:
        """See `Simulation.run`."""
        with ExitStack() as scaled:
            scaled.enter_context(replaced(coordinator_log, "COMMIT_TIMEOUT_MS", REPLICAS_MS))
            scaled.enter_context(replaced(marker_replication, "_TIMEOUT_MS", REPLICAS_MS))
            scaled.enter_context(replaced(lifecycle, "TIMEOUT_MS", HEARTBEAT_TIMEOUT_MS))
            for module in (fetcher, isr_requests, channels):
                scaled.enter_context(replaced(module, "TIMEOUT_MS", PEER_TIMEOUT_MS))
            scaled.enter_context(replaced(Group.__init__, "__defaults__", (self._new_uuid,)))
            outcome = super().run()
            self._run_while(lambda: self._what_is_left() is not None, REST_MS)
        if not self._is_lossy():
            left = self._what_is_left()
            if left is not None:
                raise ViolationError(f"rest: {left}")
            readers = [consumer.process.name for consumer in self.consumers]
            self.ledger.check_end(readers)
            self.consumer_side.check_end(readers)
        return outcome

    def _is_lossy(self) -> bool:
        return bool(self.checker.lost_with_power)

    def _new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.world.random.getrandbits(128))

    def _what_is_left(self) -> str | None:
        """Return what is not as it will be in the end."""
        if not self._has_read_all():
            return "a transaction stays open, or its end is not read"
        for key, log in self._logs():
            if log.last_stable_offset < log.high_watermark:
                return f"a transaction stays open in {self._image().topics[key[0]].name}-{key[1]}"
        owned = sorted(partition for member in self.members for partition in member.owned)
        if owned != list(range(self.topics[TOPIC])) and any(member.process.is_up for member in self.members):
            return f"members of the group own the partitions {owned}"
        assert self.offsets_reader is not None
        for name, offset in self.offsets_reader.found.items():
            if offset < self.ledger.offset_floor(name):
                return f"the group of {name} has the offset {offset}, not {self.ledger.offset_floor(name)}"
        return self.consumer_side.what_is_left(consumer.process.name for consumer in self.consumers)

    def _has_read_all(self) -> bool:
        logs = self._logs()
        return all(
            consumer.offsets[key] == log.end_offset
            for consumer in self.consumers
            for key, log in logs
            if key in consumer.offsets
        )

    def _logs(self) -> list[tuple[PartitionKey, BatchLog]]:
        """Return the log of each leader."""
        found = []
        for key, partition in self._image().partitions.items():
            broker = self.brokers.get(partition.leader)
            if broker is not None and key in broker.logs:
                found.append((key, cast(BatchLog, broker.logs[key])))
        return found

    def _run(self, end_ms: int) -> None:
        self.world.run_until(end_ms, self._check, CHECK_EACH_EVENTS)

    def _check(self) -> None:
        self.checker.check_all()
        self.ledger.check_stable(
            cast(BatchLog, log) for broker in self.brokers.values() for log in broker.logs.values()
        )

    def _are_idle(self) -> bool:
        return super()._are_idle() and all(program.is_idle for program in self.programs)

    # -- clients -------------------------------------------------------------------------------------------------------

    def _start_clients(self) -> None:
        keys = self._keys(TOPIC)
        self._run_while(lambda: not self._is_coordinating(), STARTS_MS)
        names = ("ada", "bob")[: self.world.random.choice((1, 2, 2))]
        for name in names:
            self._start_program(name)
        self.offsets_reader = OffsetsReader(self.world, self.brokers, self.ledger, TOPIC, names)
        for number in range(2):
            name = f"committed consumer {number}"
            self.consumers.append(CommittedConsumer(self.world, self.brokers, self.checker, self.ledger, name, keys))
        BatchConsumer(self.world, self.brokers, self.checker, "consumer", keys)
        GroupReader(self.world, self.brokers, self.groups, TOPIC, self.topics[TOPIC])
        self.consumer_side.start(TOPIC, self.topics[TOPIC])
        for name in NAMES_OF_PROCESSORS[: self.world.random.choice((0, 2, 2))]:
            self._start_program(name)
        for _ in range(self.world.random.choice((2, 3))):
            self._start_member()

    def _start_member(self) -> None:
        self.members.append(
            GroupMember(self.world, self.brokers, self.groups, len(self.members), TOPIC, self.topics[TOPIC])
        )

    def _is_coordinating(self) -> bool:
        standings = [broker.handler_broker.standing for broker in self.brokers.values()]
        return all(
            any(standing.refusal(coordinator) is ErrorCode.NONE for standing in standings)
            for coordinator in (GROUPS, TRANSACTIONS)
        )

    def _start_program(self, name: str) -> None:
        if self._is_healed:
            return  # it would not hear that all are to stop
        self._begin_program(name)

    def _begin_program(self, name: str) -> None:
        number = len(self.programs)
        program = self._make_program(number, name)
        program.on_commit = self.moments.on_commit
        self.programs.append(program)
        self.engines.append(program)

    def _make_program(self, number: int, name: str) -> TransactionalNode:
        common = (self.world, self.brokers, self.outcomes, self.ledger, number, TOPIC, name)
        if name not in NAMES_OF_PROCESSORS:
            return TransactionalNode(*common)
        processor = Processor(*common, self.consumer_side.rows, self.consumer_side.processed)
        processor.on_offsets = self.moments.on_offsets
        processor.on_over = self._replace_over
        self.consumer_side.processors.append(processor)
        return processor

    # -- faults --------------------------------------------------------------------------------------------------------

    def _replace_program(self) -> None:
        """Begin another instance of a program beside the one that runs, which perhaps is stopped for a while."""
        chance = self.world.random
        if len(self.programs) < MOST_INSTANCES:
            before = chance.choice(self.programs)
            pause_ms = chance.choice((0, 100, 400))
            self.world.note(f"another instance of {before.transactional_id} begins, that before pauses for {pause_ms}")
            before.process.paused_until_ms = self.world.now_ms + pause_ms
            self._start_program(before.transactional_id)

    def _replace_over(self, processor: Processor) -> None:
        """Begin another instance of a program that has failed, unless one runs: a supervisor does so."""
        name = processor.transactional_id
        if all(other.is_over for other in self.programs if other.transactional_id == name):
            self.world.at(self.world.random.randint(1, 100), lambda: self.start_another(name))

    def start_another(self, transactional_id: str) -> None:
        """Begin another instance of a program, unless there have been enough."""
        if len(self.programs) < MOST_INSTANCES:
            self._start_program(transactional_id)

    def end_broker(self, broker: BrokerNode) -> None:
        """End a broker's process; it starts again later."""
        self._end(broker, power_cut=False)

    def _crash_program(self) -> None:
        """End an instance of a program, and perhaps begin another one later."""
        chance = self.world.random
        running = [program for program in self.programs if not program.is_over]
        if not running:
            return
        program = chance.choice(running)
        self.world.note(f"kill {program.process.name}, {program.transactional_id}")
        program.crash()
        if chance.random() < 0.7 and len(self.programs) < MOST_INSTANCES:
            self.world.at(chance.randint(1, 600), lambda: self._start_program(program.transactional_id))

    def _crash_member(self) -> None:
        """End a member of the group, and begin another one later."""
        chance = self.world.random
        member = chance.choice(self.members)
        if member.process.is_up and len(self.members) < MOST_INSTANCES:
            self.world.note(f"kill {member.process.name}")
            member.process.is_up = False
            self.world.at(chance.randint(1, 500), self._start_member)

    def _pause_member(self) -> None:
        """Stop a member for a while: what it does then may be of an older generation."""
        process = self.world.random.choice(self.members).process
        length_ms = self.world.random.randint(10, 900)
        self.world.note(f"pause {process.name} for {length_ms}")
        process.paused_until_ms = self.world.now_ms + length_ms

    def _heal(self) -> None:
        super()._heal()
        self.moments.end()
        for member in self.members:
            member.process.paused_until_ms = 0
        self.consumer_side.heal()
