"""A transaction coordinator as small as can be: it knows whether a transaction was committed.

Epochs, one open transaction, and the rules by which a repeated EndTxn or InitProducerId is recognized.
Source: KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkaprod.engine.transactions.requests import TransactionRequest
from kafkaprod.engine.transactions.verdicts import Step
from tests.support.engine.coordinators import answer

FENCED, INVALID_STATE = 90, 48


@dataclass
class ModelCoordinator:
    """See the module.

    Attributes:
        state: empty, ongoing, committed or aborted.
        committed, aborted: Numbers of transactions, as the client counts them.
        number: Of the transaction that is open in the client.
    """

    producer_id: int = 4000
    epoch: int = -1
    bumped_from: int | None = None
    state: str = "empty"
    number: int = 0
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    ends: int = 0

    def handle(self, request: TransactionRequest) -> Any:
        """Do what a request says; return the answer."""
        message: Any = request.message
        if request.step is Step.FIND_COORDINATOR:
            return answer(request)
        if request.step in (Step.INIT, Step.BUMP):
            return self._init(request, message.producer_epoch)
        if request.step is Step.END:
            return self._end(request, message.producer_epoch, is_v2=request.versions[0] >= 5)
        is_add = request.step is Step.ADD_PARTITIONS
        epoch = message.v3_and_below_producer_epoch if is_add else message.producer_epoch
        if epoch != self.epoch:
            return answer(request, 47 if request.step is Step.COMMIT_OFFSETS else FENCED)
        self.state = "ongoing"
        return answer(request)

    def produce(self, epoch: int) -> bool:
        """A leader adds a partition under v2; False: 47."""
        if epoch != self.epoch:
            return False
        self.state = "ongoing"
        return True

    def abort_by_itself(self) -> None:
        """A transaction took too long, or another producer took over."""
        if self.state == "ongoing":
            self.state = "aborted"
            self.aborted.add(self.number)
            self.epoch += 1
            self.bumped_from = None

    def take_over(self) -> None:
        """Another producer with the same id."""
        self.abort_by_itself()
        self.epoch += 1
        self.state = "empty"
        self.bumped_from = None

    def _init(self, request: TransactionRequest, epoch: int) -> Any:
        if epoch >= 0 and epoch == self.bumped_from:
            return answer(request, 0, (self.producer_id, self.epoch))
        if epoch >= 0 and epoch != self.epoch:
            return answer(request, FENCED)
        assert not (epoch >= 0 and self.state == "ongoing"), "a bump over an open transaction"
        if self.state == "ongoing":
            self.aborted.add(self.number)
        self.bumped_from = epoch if epoch >= 0 else None
        self.epoch += 1
        self.state = "empty"
        return answer(request, 0, (self.producer_id, self.epoch))

    def _end(self, request: TransactionRequest, epoch: int, *, is_v2: bool) -> Any:
        wanted = "committed" if request.is_commit else "aborted"
        if is_v2 and epoch == self.epoch - 1 and self.state in ("committed", "aborted"):
            if self.state != wanted:
                return answer(request, INVALID_STATE)
            return answer(request, 0, (self.producer_id, self.epoch))
        if epoch != self.epoch:
            return answer(request, FENCED)
        if self.state != "ongoing":
            if not is_v2:
                return answer(request, 0 if self.state == wanted else INVALID_STATE)
            if request.is_commit:
                return answer(request, INVALID_STATE)
        self.ends += 1
        (self.committed if request.is_commit else self.aborted).add(self.number)
        self.state = wanted
        self.bumped_from = None
        if is_v2:
            self.epoch += 1
            return answer(request, 0, (self.producer_id, self.epoch))
        return answer(request)
