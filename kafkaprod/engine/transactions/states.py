"""The states of a transactional producer and the legal moves between them. Source: TransactionManager.State, KIP-98."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where the producer is; the value is the word used in messages."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"  # also after a transaction whose end needs a newer epoch
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    FATAL_ERROR = "failed for good"

    __hash__ = object.__hash__  # Enum's own hashes the name in Python, several times a turn of the sender thread


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.READY: frozenset({State.UNINITIALIZED, State.IN_TRANSACTION, State.FATAL_ERROR}),  # the first: another id
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR},
    ),
    State.COMMITTING: frozenset({State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}

FAILED: Final = frozenset({State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR})
"""States in which batches that were not sent fail."""
OPEN: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR})
"""States in which batches of the current transaction may be on their way."""

ENDING: Final = frozenset({State.COMMITTING, State.ABORTING})
"""States in which the transaction is ended as soon as its batches have their outcomes."""
IDLE: Final = frozenset({State.UNINITIALIZED, State.READY, State.IN_TRANSACTION})
"""States in which a request is due only for a call of the application, or for a new partition."""
