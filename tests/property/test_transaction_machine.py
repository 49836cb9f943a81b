"""Any history of producers, fencing, timeouts and crashes: what was committed is read, nothing else ever is."""

from __future__ import annotations

import shutil
import tempfile
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from tests.support.broker.broker_requests import TOPIC
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.transaction_requests import (
    TV1,
    TV2,
    TransactionalClient,
    committed_offset,
    end_offset,
    read_everything,
    stable_offset,
)

PARTITIONS = (0, 1)
IDS = ("a", "b")
TIMEOUT_MS = 10_000
CHECK_MS = 100
REFUSED = {47, 48, 49, 51, 90, 120}


class Producer(TransactionalClient):
    """A client, and what it may believe.

    Attributes:
        values, offset: of the transaction that is open.
        is_owner: no other producer has taken its id.
        is_timed_out: the coordinator has aborted its transaction, and it does not know yet.
        restarts: how many the broker had had then.
    """

    def __init__(self, box: BrokerWithoutSockets, transactional_id: str, *, is_tv2: bool) -> None:
        super().__init__(box, TV2 if is_tv2 else TV1, transactional_id)
        self.values: set[bytes] = set()
        self.offset: int | None = None
        self.began_ms: int | None = None
        self.is_owner = True
        self.is_timed_out = False
        self.restarts = 0

    @property
    def may_write(self) -> bool:
        return self.is_owner and not self.is_timed_out

    def forget_transaction(self) -> None:
        self.values, self.offset, self.began_ms = set(), None, None


class TransactionMachine(RuleBasedStateMachine):
    """Producers of two ids that do anything at any time, on a broker that may die at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.numbers = count()
        self.producers: list[Producer] = []
        self.committed: set[bytes] = set()
        self.offsets = dict.fromkeys(IDS, -1)
        self.opened = 0

    @initialize(level=st.sampled_from([1, 2]))
    def open(self, level: int) -> None:
        self.level = level
        self.config = TransactionConfig(version=level, timeout_check_ms=CHECK_MS)
        self.box = BrokerWithoutSockets(self.root, topics={TOPIC: len(PARTITIONS)}, transactions=self.config)

    def teardown(self) -> None:
        if hasattr(self, "box"):
            self.advance(2 * TIMEOUT_MS)
            assert read_everything(self.box, PARTITIONS) == self.committed
            for partition in PARTITIONS:
                assert end_offset(self.box, partition, is_committed=True) == end_offset(self.box, partition)
            for group in IDS:
                assert stable_offset(self.box, group=group) == (self.offsets[group], 0)
            self.box.broker.close()
        shutil.rmtree(self.root)

    # -- producers -----------------------------------------------------------------------------------------------------

    @rule(transactional_id=st.sampled_from(IDS), is_tv2=st.booleans())
    def start(self, transactional_id: str, is_tv2: bool) -> None:
        producer = Producer(self.box, transactional_id, is_tv2=is_tv2 and self.level == 2)
        error = producer.init(timeout_ms=TIMEOUT_MS)
        if error == 51:
            error = producer.init(timeout_ms=TIMEOUT_MS)
        assert error == 0
        for other in self.producers:
            if other.transactional_id == transactional_id:
                assert (producer.producer_id, producer.epoch) > (other.producer_id, other.epoch)
                other.is_owner = False
                other.forget_transaction()
        self.producers.append(producer)

    def pick(self, data: st.DataObject) -> Producer:
        return data.draw(st.sampled_from(self.producers))

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), size=st.integers(1, 3))
    def send(self, data: st.DataObject, partition: int, size: int) -> None:
        producer = self.pick(data)
        values = [b"%d" % next(self.numbers) for _ in range(size)]
        error = producer.send(*values, partition=partition)
        if producer.may_write:
            assert error == 0
            producer.values.update(values)
            self.begin(producer)
        else:
            assert error in REFUSED

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def send_offset(self, data: st.DataObject) -> None:
        producer, offset = self.pick(data), next(self.numbers)
        error = producer.send_offset(offset, group=producer.transactional_id)
        if producer.may_write:
            assert error == 0
            producer.offset = offset
            self.begin(producer)
        else:
            assert error in REFUSED

    def begin(self, producer: Producer) -> None:
        if producer.began_ms is None:
            producer.began_ms = self.box.clock.wall_ms()

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        producer = self.pick(data)
        error = producer.commit()
        if not producer.may_write or producer.began_ms is None:
            assert error in REFUSED or not producer.values
        else:
            assert error == 0
            self.committed |= producer.values
            if producer.offset is not None:
                self.offsets[producer.transactional_id] = producer.offset
        if error == 0 or not producer.may_write:
            producer.forget_transaction()

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        producer = self.pick(data)
        error = producer.abort()
        if producer.versions.is_tv2 and producer.is_owner:
            assert error == 0  # also after a timeout: nobody else has taken the id
            producer.is_timed_out = False
        elif not producer.may_write:
            assert error in REFUSED
        elif producer.began_ms is not None:
            assert error == 0
        producer.forget_transaction()

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def raise_epoch(self, data: st.DataObject) -> None:
        """InitProducerId with the present id and epoch (KIP-360), as after an abortable error."""
        producer = self.pick(data)
        if not producer.may_write:
            error = producer.init(timeout_ms=TIMEOUT_MS, bumps=True)
            # At level 2 a timeout does not fence the owner: it gets the epoch of the abort. But a restart forgets
            # which epoch that one replaced.
            may_return = producer.is_owner and self.level == 2
            assert error == (0 if may_return and producer.restarts == self.opened else 90)
            producer.is_timed_out = producer.is_timed_out and error != 0
            return
        was_open = producer.began_ms is not None
        error = producer.init(timeout_ms=TIMEOUT_MS, bumps=True)
        assert error == (51 if was_open else 0)
        if was_open:
            producer.forget_transaction()
            producer.is_owner = producer.init(timeout_ms=TIMEOUT_MS, bumps=True) == 0
            assert producer.is_owner == (self.level == 2)

    # -- time and crashes ----------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 500, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def advance(self, ms: int) -> None:
        for step_ms in (ms, CHECK_MS, CHECK_MS):
            self.box.advance(step_ms)
        now_ms = self.box.clock.wall_ms()
        for producer in self.producers:
            # Around the limit it depends on when the coordinator looked: it has looked by the next interval.
            if producer.began_ms is not None and producer.began_ms + TIMEOUT_MS < now_ms - CHECK_MS:
                producer.is_timed_out = True
                producer.restarts = self.opened
                producer.forget_transaction()
            elif producer.began_ms is not None and producer.began_ms + TIMEOUT_MS < now_ms:
                self.advance(2 * CHECK_MS)
                return

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.opened += 1
        now_ms = self.box.clock.now_ms()
        directory = self.root / str(self.opened)
        if is_clean:
            self.box.broker.close()
        shutil.copytree(Path(self.box.broker.log_dirs.first.path), directory / "data")
        if not is_clean:
            self.box.broker.close()
        self.box = BrokerWithoutSockets(directory, transactions=self.config)
        self.box.clock.advance(now_ms)
        self.box.broker.transactions.next_deadline_ms(now_ms)
        for producer in self.producers:
            producer.box = self.box

    # -- promises ------------------------------------------------------------------------------------------------------

    @invariant()
    def readers_of_committed_data_see_nothing_else(self) -> None:
        if hasattr(self, "box"):
            assert read_everything(self.box, PARTITIONS) <= self.committed
            for partition in PARTITIONS:
                assert end_offset(self.box, partition, is_committed=True) <= end_offset(self.box, partition)
            for group in IDS:
                assert committed_offset(self.box, group=group) == self.offsets[group]


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=30, stateful_step_count=25)
