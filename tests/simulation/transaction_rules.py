"""Rules of transactions and groups, each with a way to switch it off: the seeds of `--transactions` must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafkaprod.broker.cluster import marker_replication
from kafkaprod.broker.cluster.coordination import Coordination
from kafkaprod.broker.cluster.coordinator_log import ReplicatedCoordinatorLog
from kafkaprod.broker.cluster.marker_sender import MarkerSender
from kafkaprod.broker.coordinator import transaction
from kafkaprod.broker.coordinator.group_coordinator import GroupCoordinator
from kafkaprod.broker.coordinator.internal_log import InternalLog
from kafkaprod.broker.coordinator.offset_log import OffsetLog
from kafkaprod.broker.coordinator.saved_groups import SavedGroups
from kafkaprod.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafkaprod.broker.coordinator.transaction_log import TransactionLog
from kafkaprod.broker.handlers import produce
from kafkaprod.broker.storage.producers.producer_state import ProducerState
from kafkaprod.engine.transactions.machine import TransactionMachine
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.internal_records import NOT_TRANSACTIONAL
from tests.simulation.batch_logs import BatchLog
from tests.simulation.consumer_rules import CONSUMER_RULES
from tests.simulation.rules import replaced


def _to_the_first(send: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: MarkerSender, marker: Any, partitions: Any, on_done: Any) -> None:
        send(self, marker, sorted(partitions)[:1], on_done)

    return wrong


def _gives_up(end_attempt: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: MarkerSender, delivery: Any) -> None:
        delivery.errors.update(dict.fromkeys(delivery.left, 0))
        delivery.left.clear()
        end_attempt(self, delivery)

    return wrong


def _forgets_ongoing(fence: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(now: Any, given: Any, timeout_ms: int, now_ms: int, level: int, new_producer_id: Any) -> Any:
        if now.state is transaction.TransactionState.ONGOING and given is None:
            rested = replace(now, state=transaction.TransactionState.EMPTY)  # no such move is in the table of states
            after = transaction._reset(rested, timeout_ms, now_ms, epoch=now.epoch + 1)
            return transaction.Transition(after=after, answer=after.identity)
        return fence(now, given, timeout_ms, now_ms, level, new_producer_id)

    return wrong


def _same_epoch_again(init: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(now: Any, given: Any, timeout_ms: int, now_ms: int, level: int, new_producer_id: Any) -> Any:
        if now.epoch >= 0 and now.state in transaction.AT_REST and given is None:
            after = transaction._reset(now, timeout_ms, now_ms)
            return transaction.Transition(after=after, answer=after.identity)
        return init(now, given, timeout_ms, now_ms, level, new_producer_id)

    return wrong


def _takes_old_epochs(check: Callable[..., None]) -> Callable[..., None]:
    """Leave out the check of the epoch, and those that stand behind it.

    Without `_check_epoch` alone nothing changes for transactions: a batch of an older epoch gets no token of a
    verification, and no transaction of its epoch is open, so that `_check_verified` refuses it, too.
    """

    def wrong(self: ProducerState, header: Any, *guard: Any) -> None:
        entry = self.producers.get(header.producer_id)
        if entry is None or header.producer_epoch >= entry.epoch:
            check(self, header, *guard)

    return wrong


def _keeps_tokens(add_marker: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: ProducerState, header: Any, *arguments: Any) -> Any:
        token = self._tokens.get(header.producer_id)
        completed = add_marker(self, header, *arguments)
        if token is not None:
            self._tokens[header.producer_id] = token
        return completed

    return wrong


def _at_once(put: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: OffsetLog, writer: Any, *arguments: Any) -> None:
        put(self, NOT_TRANSACTIONAL, *arguments)

    return wrong


def _commits_all(end_transaction: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: OffsetLog, producer_id: int, *, is_commit: bool) -> None:
        end_transaction(self, producer_id, is_commit=True)

    return wrong


GROUP_RULES: dict[str, Callable[[], Any]] = {
    "a group refuses the commit of an older generation": lambda: replaced(
        GroupCoordinator, "check_commit", lambda *_, **__: ErrorCode.NONE
    ),
    "a group keeps its generation from coordinator to coordinator": lambda: replaced(
        SavedGroups, "read_all", lambda *_: iter(())
    ),
    "a coordinator reads the offsets of the one before": lambda: replaced(InternalLog, "replay", lambda _: iter(())),
    "a member that is silent leaves its group": lambda: replaced(GroupCoordinator, "on_time", lambda *_: None),
    "offsets of a transaction wait for its end": lambda: replaced(OffsetLog, "_put", _at_once(OffsetLog._put)),
    "offsets of an aborted transaction are dropped": lambda: replaced(
        OffsetLog, "end_transaction", _commits_all(OffsetLog.end_transaction)
    ),
    "offsets of a committed transaction count": lambda: replaced(OffsetLog, "end_transaction", lambda *_, **__: None),
}
"""Rules of groups and of their offsets."""

TRANSACTION_RULES: dict[str, Callable[[], Any]] = {
    **GROUP_RULES,
    **CONSUMER_RULES,
    "committed records end at the last stable offset": lambda: replaced(
        BatchLog, "last_stable_offset", property(lambda self: self.high_watermark)
    ),
    "a marker counts when it is replicated": lambda: replaced(
        ProducerState, "first_unstable_offset", lambda self: min(self._open, default=None)
    ),
    "readers learn which transactions are aborted": lambda: replaced(BatchLog, "aborted_transactions", lambda *_: []),
    "a log refuses an older producer epoch": lambda: replaced(
        ProducerState, "check", _takes_old_epochs(ProducerState.check)
    ),
    "the first record of a transaction asks the coordinator": lambda: replaced(
        produce, "verify", lambda broker, request, verification, then: then()
    ),
    "a coordinator answers when its replicas have what it says": lambda: replaced(
        Coordination, "after_replicas", lambda self, coordinator, refuse, receiver: receiver
    ),
    "a coordinator reads the log of the one before": lambda: replaced(TransactionLog, "_replay", lambda _: iter(())),
    "a coordinator completes what the one before decided": lambda: replaced(
        TransactionCoordinator, "recover", lambda *_: None
    ),
    "a transaction that is open for too long is aborted": lambda: replaced(transaction, "is_overdue", lambda *_: False),
    "markers go out when the decision is replicated": lambda: replaced(
        TransactionCoordinator, "_complete_later", TransactionCoordinator._complete
    ),
    "markers go to all partitions": lambda: replaced(MarkerSender, "send", _to_the_first(MarkerSender.send)),
    "a marker is sent until it is written": lambda: replaced(
        MarkerSender, "_end_attempt", _gives_up(MarkerSender._end_attempt)
    ),
    "a marker waits for the replicas": lambda: replaced(
        marker_replication, "await_replicas", lambda broker, batches, timeout_ms, then: then()
    ),
    "a coordinator writes in its own epoch only": lambda: replaced(
        ReplicatedCoordinatorLog, "is_current", property(lambda _: True)
    ),
    "a verification ends with the marker": lambda: replaced(
        ProducerState, "add_marker", _keeps_tokens(ProducerState.add_marker)
    ),
    "an instance that begins ends the transaction of the one before": lambda: replaced(
        transaction, "init", _forgets_ongoing(transaction.init)
    ),
    "an instance that begins gets an epoch of its own": lambda: replaced(
        transaction, "init", _same_epoch_again(transaction.init)
    ),
    "a coordinator refuses an older producer epoch": lambda: replaced(
        transaction, "_check_producer", lambda *_: ErrorCode.NONE
    ),
    "a transaction with a failed record is not committed": lambda: replaced(
        TransactionMachine, "on_batch_failed", lambda *_, **__: None
    ),
    "a commit without an answer may have happened": lambda: replaced(TransactionMachine, "_note_lost", lambda *_: None),
}
