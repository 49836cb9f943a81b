"""A transaction machine and the answers to its requests, without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkaprod.engine.transactions.calls import Call
from kafkaprod.engine.transactions.machine import TransactionMachine
from kafkaprod.engine.transactions.requests import TransactionRequest
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import ConnectionLostError, KafkaError
from kafkaprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafkaprod.protocol.messages.end_txn import EndTxnResponse
from kafkaprod.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdResponse
from kafkaprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafkaprod.structs import TopicPartition
from tests.support.config import unchecked_config


def answer(request: TransactionRequest, code: int = 0, producer: tuple[int, int] = (-1, -1)) -> Any:
    """The response to a request, in its highest version.

    Args:
        request: What was asked.
        code: Of the whole request, or of each partition.
        producer: Id and epoch, of InitProducerId and EndTxn.
    """
    message: Any = request.message
    if request.step is Step.FIND_COORDINATOR:
        node = 1 if code == 0 else -1
        key = message.coordinator_keys[0]
        coordinator = Coordinator(key=key, node_id=node, host="h", port=9092, error_code=code, error_message=None)
        return FindCoordinatorResponse(coordinators=[coordinator])
    if request.step in (Step.INIT, Step.BUMP):
        return InitProducerIdResponse(error_code=code, producer_id=producer[0], producer_epoch=producer[1])
    if request.step is Step.ADD_PARTITIONS:
        return partition_codes(request, dict.fromkeys(request.partitions, code))
    if request.step is Step.ADD_OFFSETS:
        return AddOffsetsToTxnResponse(error_code=code)
    if request.step is Step.COMMIT_OFFSETS:
        return offset_codes(request, code)
    return EndTxnResponse(error_code=code, producer_id=producer[0], producer_epoch=producer[1])


def partition_codes(request: TransactionRequest, codes: Mapping[TopicPartition, int]) -> AddPartitionsToTxnResponse:
    """An answer to AddPartitionsToTxn with these codes."""
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in topic.partitions
            ],
        )
        for topic in request.message.v3_and_below_topics  # type: ignore[attr-defined]
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def offset_codes(request: TransactionRequest, code: int, bad: TopicPartition | None = None) -> TxnOffsetCommitResponse:
    """An answer to TxnOffsetCommit: `code` for each partition, or only for `bad`."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code if bad in (None, TopicPartition(topic.name, partition.partition_index)) else 0,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.message.topics  # type: ignore[attr-defined]
        ]
    )


class Bench:
    """A machine with time, driven by hand.

    Attributes:
        machine: Under test.
        now_ms: The time.
        has_batches: A batch has no outcome.
    """

    def __init__(self, *, is_v2: bool = False, timeout_ms: int = 60_000) -> None:
        self.machine = TransactionMachine(
            unchecked_config(transactional_id="tx", transaction_timeout_ms=timeout_ms), lambda: 0.5
        )
        self.machine.can_use_v2 = is_v2
        self.now_ms = 0
        self.has_batches = False

    def next(self) -> TransactionRequest | None:
        """The next request, however long its backoff is."""
        self.now_ms += self.machine.wait_ms(self.now_ms)
        return self.machine.next_request(self.now_ms, has_batches=self.has_batches)

    def expect(self, step: Step) -> TransactionRequest:
        """The next request, which must be this one."""
        request = self.next()
        assert request is not None, f"{step} was expected in state {self.machine.state}"
        assert request.step is step
        return request

    def respond(
        self,
        request: TransactionRequest,
        code: int = 0,
        producer: tuple[int, int] = (-1, -1),
        version: int | None = None,
    ) -> None:
        """Answer the request in flight."""
        version = request.versions[1] if version is None else version
        self.machine.on_response(answer(request, code, producer), version, self.now_ms)

    def lose(self, error: KafkaError | None = None) -> None:
        """Break the connection before the answer."""
        self.machine.on_no_answer(error or ConnectionLostError("cut"), self.now_ms)

    def answer_next(self, step: Step, code: int = 0, producer: tuple[int, int] = (-1, -1)) -> TransactionRequest:
        """Expect a request and answer it."""
        request = self.expect(step)
        self.respond(request, code, producer)
        return request

    def outcome(self, call: Call) -> KafkaError | None:
        """The outcome of a call that must be done."""
        assert call.is_done
        return self.machine.settle(call)

    def init(self, producer: tuple[int, int] = (4000, 0), version: int | None = None) -> None:
        """Initialize, answered in a version; None: the newest."""
        call = self.machine.init()
        self.answer_next(Step.FIND_COORDINATOR)
        self.respond(self.expect(Step.INIT), 0, producer, version)
        assert self.outcome(call) is None

    def begin(self, *partitions: TopicPartition) -> None:
        """Begin a transaction in which batches of these partitions are delivered."""
        self.machine.begin()
        for partition in partitions:
            if not self.machine.may_drain(partition):
                self.answer_next(Step.ADD_PARTITIONS)
                assert self.machine.may_drain(partition)
            self.machine.on_drained()
