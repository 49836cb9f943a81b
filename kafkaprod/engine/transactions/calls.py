"""What the application waits for, and why it failed. Pure.

A call is made by an application thread and finished by the sender thread; whoever drives the machine holds a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kafkaprod.engine.transactions.offsets import GroupMetadata, OffsetAndMetadata
from kafkaprod.errors import Category, CommitOutcome, KafkaError
from kafkaprod.structs import TopicPartition


class CallKind(Enum):
    """A call that waits; the value is its name in messages."""

    INIT = "init_transactions()"
    OFFSETS = "send_offsets_to_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that is raised as often as the application calls, each time as a new object.

    Attributes:
        text: What happened, to which transaction, and what to do.
        outcome: What is certain about the transaction; None: none was open.
    """

    error_class: type[KafkaError]
    text: str
    category: Category
    code: int = -1
    name: str = "UNKNOWN_SERVER_ERROR"
    outcome: CommitOutcome | None = None
    cause: BaseException | None = None

    def error(self) -> KafkaError:
        """Make the error to raise."""
        error = self.error_class(self.text, code=self.code, name=self.name)
        error.category = self.category
        error.outcome = self.outcome
        error.__cause__ = self.cause
        return error


@dataclass(slots=True, eq=False)
class Call:
    """A call of the application.

    Attributes:
        is_done: It has its outcome.
        failure: Why it failed; None: it succeeded.
        is_decided: The coordinator has committed or aborted; only the epoch for the next transaction is missing.
        is_waited_for: A thread waits for it now. Else it timed out, and the next call of its kind resumes it.
        waiter: With what that thread waits; None before it waits.
        wake: Called once it is done.
    """

    kind: CallKind
    is_done: bool = False
    failure: Failure | None = None
    is_decided: bool = False
    is_waited_for: bool = True
    waiter: Callable[[], None] | None = None
    wake: Callable[[], None] | None = None

    def finish(self, failure: Failure | None = None) -> None:
        """Give the call its outcome, once."""
        if self.is_done:
            return
        self.is_done = True
        self.failure = failure
        if self.wake is not None:
            self.wake()


@dataclass(slots=True, eq=False)
class OffsetsCall(Call):
    """Offsets on their way into the transaction.

    Attributes:
        wanted: What the application gave.
        missing: What has not been accepted yet; a repetition sends only this.
    """

    group: GroupMetadata = field(default_factory=lambda: GroupMetadata(""))
    wanted: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    missing: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    def is_for(self, group: Any, offsets: Any) -> bool:
        """Whether it is about the same offsets of the same member."""
        return bool(self.group == group and self.wanted == offsets)
