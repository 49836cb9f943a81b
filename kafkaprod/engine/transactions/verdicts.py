"""The requests of a transaction, and what an answer to one may call for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Step(Enum):
    """A request of the transaction; the value is its name in messages."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"
    BUMP = "InitProducerId for a newer epoch"

    __hash__ = object.__hash__  # Enum's own hashes the name in Python


class Verdict(Enum):
    """What an answer calls for."""

    DONE = auto()
    RETRY = auto()  # the same request after a backoff
    WAIT_FOR_PREVIOUS = auto()  # the same request after a short wait: the previous transaction is being completed
    FIND_COORDINATOR = auto()  # the coordinator moved: find it, then the same request
    ABORTABLE = auto()
    FATAL = auto()
    REFUSED = auto()  # the call fails and may be made again


@dataclass(frozen=True, slots=True)
class Facts:
    """What a verdict depends on besides request and code.

    Attributes:
        is_v2: The rules of the current transaction.
        is_commit: EndTxn commits; else it aborts.
        can_bump: The coordinator knows InitProducerId 3, so that a newer epoch can be had (Kafka 2.5).
        is_first_init: The producer has never been initialized.
    """

    is_v2: bool = False
    is_commit: bool = False
    can_bump: bool = True
    is_first_init: bool = False
