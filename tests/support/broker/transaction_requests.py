"""A transactional client of a broker without sockets, one request at a time; answers are error codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kafkaprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from kafkaprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kafkaprod.storage.batch_header import parse_header
from tests.support.broker.broker_requests import TOPIC, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch, split_batches


class Versions(NamedTuple):
    """Of the requests of one transaction protocol."""

    produce: int
    add_partitions: int
    add_offsets: int
    end: int
    offset_commit: int

    @property
    def is_tv2(self) -> bool:
        return self.end >= 5


TV1_OLDEST = Versions(3, 0, 0, 0, 0)
TV1 = Versions(11, 3, 4, 4, 4)
TV2 = Versions(12, 4, 4, 5, 5)


class TransactionalClient:
    """A producer that does what it is asked to, right or wrong.

    Attributes:
        producer_id, epoch: as the last answer gave them.
        sequences: the next one of each partition.
    """

    def __init__(self, box: BrokerWithoutSockets, versions: Versions = TV2, transactional_id: str = "tx") -> None:
        self.box = box
        self.versions = versions
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[int, int] = {}

    def init(self, *, timeout_ms: int = 60_000, bumps: bool = False, version: int = 5) -> int:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        if bumps:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        answer = self.box.ask(request, InitProducerIdResponse, version)
        if answer.error_code == 0:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def add(self, *partitions: int, topic: str = TOPIC) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self.box.ask(request, AddPartitionsToTxnResponse, self.versions.add_partitions)
        (found,) = answer.results_by_topic_v3_and_below
        return [result.partition_error_code for result in found.results_by_partition]

    def send(self, *values: bytes, partition: int = 0, sequence: int | None = None) -> int:
        """Produce one batch, added first where the protocol wants that."""
        if not self.versions.is_tv2:
            error = self.add(partition)[0]
            if error:
                return error
        return self.produce(*values, partition=partition, sequence=sequence)

    def produce(self, *values: bytes, partition: int = 0, sequence: int | None = None) -> int:
        first = self.sequences.get(partition, 0) if sequence is None else sequence
        batch = make_batch(
            values, producer_id=self.producer_id, epoch=self.epoch, sequence=first, is_transactional=True
        )
        answer = produce(self.box, batch, self.versions.produce, partition=partition, transaction=self.transactional_id)
        if answer.error_code == 0 and sequence is None:
            self.sequences[partition] = first + len(values)
        return answer.error_code

    def end(self, is_commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        answer = self.box.ask(request, EndTxnResponse, self.versions.end)
        if answer.error_code == 0 and self.versions.is_tv2:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def commit(self) -> int:
        return self.end(True)

    def abort(self) -> int:
        return self.end(False)

    def add_offsets(self, group: str = "g") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return self.box.ask(request, AddOffsetsToTxnResponse, self.versions.add_offsets).error_code

    def send_offset(self, offset: int, *, partition: int = 0, group: str = "g") -> int:
        """Commit an offset of `TOPIC` in the transaction, with AddOffsetsToTxn where the protocol wants that."""
        if not self.versions.is_tv2:
            error = self.add_offsets(group)
            if error:
                return error
        return self.commit_offset(offset, partition=partition, group=group)

    def commit_offset(
        self,
        offset: int,
        *,
        partition: int = 0,
        group: str = "g",
        topic: str = TOPIC,
        generation: int = -1,
        member: str = "",
        metadata: str | None = "",
        times: int = 1,
    ) -> int:
        """Commit an offset as often as told in one request; return the first one's error code."""
        request = self.offset_request(
            offset,
            partition=partition,
            group=group,
            topic=topic,
            generation=generation,
            member=member,
            metadata=metadata,
            times=times,
        )
        answer = self.box.ask(request, TxnOffsetCommitResponse, self.versions.offset_commit)
        return answer.topics[0].partitions[0].error_code

    def offset_request(
        self,
        offset: int,
        *,
        partition: int = 0,
        group: str = "g",
        topic: str = TOPIC,
        generation: int = -1,
        member: str = "",
        metadata: str | None = "",
        times: int = 1,
    ) -> TxnOffsetCommitRequest:
        """The request of `commit_offset`."""
        wanted = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[wanted] * times)],
        )
        if self.versions.offset_commit >= 3:
            request.generation_id_or_member_epoch, request.member_id = generation, member
        return request

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


def stable_offset(box: BrokerWithoutSockets, partition: int = 0, group: str = "g") -> tuple[int, int]:
    """The offset a reader that requires stable ones sees, and the error code."""
    found = _fetch_offset(box, partition, group, requires_stable=True)
    return found.committed_offset, found.error_code


def committed_offset(box: BrokerWithoutSockets, partition: int = 0, group: str = "g") -> int:
    return _fetch_offset(box, partition, group, requires_stable=False).committed_offset


def _fetch_offset(
    box: BrokerWithoutSockets, partition: int, group: str, *, requires_stable: bool
) -> OffsetFetchResponsePartition:
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[partition])]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=requires_stable)
    return box.ask(request, OffsetFetchResponse, 7).topics[0].partitions[0]


def end_offset(box: BrokerWithoutSockets, partition: int = 0, *, is_committed: bool = False) -> int:
    """The high watermark, or the last stable offset."""
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(is_committed), topics=topics)
    return box.ask(request, ListOffsetsResponse, 5).topics[0].partitions[0].offset


def read(box: BrokerWithoutSockets, partition: int = 0, *, is_committed: bool = True) -> list[bytes]:
    """All values of a partition that a reader of this isolation level gets, by a client's own rules.

    Records of an aborted transaction are dropped from its first offset to its marker.
    """
    values: list[bytes] = []
    offset, aborted_now = 0, set[int]()
    while True:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            isolation_level=int(is_committed), max_wait_ms=0, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
        )
        (outcome,) = box.begin(request, 11)
        response = outcome.response if hasattr(outcome, "response") else outcome
        assert isinstance(response, FetchResponse)
        data = response.responses[0].partitions[0]
        assert data.error_code == 0
        assert data.last_stable_offset <= data.high_watermark
        log = box.broker.topics.partition(TOPIC, partition)
        assert log is not None
        bound = data.last_stable_offset if is_committed else data.high_watermark
        found = log.log.read(offset, 1 << 20, bound).records
        if found is None:
            return values
        aborted = {(entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ()}
        for batch in split_batches(found.read()):
            header = parse_header(batch.data)
            aborted_now.update(producer for first, producer in aborted if first <= header.last_offset)
            aborted = {entry for entry in aborted if entry[0] > header.last_offset}
            if header.is_control:
                aborted_now.discard(header.producer_id)
            elif not (is_committed and header.is_transactional and header.producer_id in aborted_now):
                values.extend(bytes(record.value or b"") for record in iterate_records(batch.data))
            offset = header.last_offset + 1


def read_everything(box: BrokerWithoutSockets, partitions: Iterable[int]) -> set[bytes]:
    return {value for partition in partitions for value in read(box, partition)}
