"""The last steps of a transaction that a mark is committed with: the pending mark, the guard, and the commit.

Writes of a producer, transactional loads and tasks of Spark take them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.clock import monotonic_s
from kafkaprod.errors import CommitUnknownError, KafkaError, TransactionTimeoutError
from kafkaprod.marks import looks
from kafkaprod.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkaprod.producer import Producer

_RETRY_MS: Final = 20


def send_mark(
    client: ClusterClient,
    producer: Producer,
    group: str,
    offsets: Mapping[tuple[str, int], tuple[int, str]],
    patience_s: float,
) -> looks.CommittedOffsets:
    """Send pending offsets, and return those that were committed before them, as the node says that has taken them.

    Args:
        client: A client of the cluster.
        producer: Its transaction is open.
        group: The group of the offsets.
        offsets: By topic and partition: the offset, and the text beside it.
        patience_s: How long the coordinator may move, or give no answer.

    Raises:
        TransactionTimeoutError: It continues.
        KafkaError: As `send_offsets_to_transaction`, or as the coordinator answered.
    """
    deadline_s = monotonic_s() + patience_s
    while True:
        try:
            producer.send_offsets_to_transaction(offsets, group)
        except TransactionTimeoutError:
            if monotonic_s() > deadline_s:
                raise
            continue  # the same call again learns its outcome
        try:
            return looks.offsets_before(client, group, _coordinator_of(producer, group))
        except KafkaError as error:
            if not looks.is_moved(error) or monotonic_s() > deadline_s:
                raise
        client.wait(_RETRY_MS)


def commit(producer: Producer, patience_s: float) -> None:
    """Commit, and make the call again while its outcome is unknown. Raises as `commit_transaction`."""
    deadline_s = monotonic_s() + patience_s
    while True:
        try:
            producer.commit_transaction()
            return
        except TransactionTimeoutError as error:
            if monotonic_s() > deadline_s or not isinstance(error, CommitUnknownError):
                raise


def _coordinator_of(producer: Producer, group: str) -> int:
    """Return the node that took the last offsets of a group. Raises BrokerError: it has moved since."""
    transactions = producer.engine.transactions
    node_id = None if transactions is None else transactions.coordinator_of_group(group)
    if node_id is None:
        raise error_for(ErrorCode.NOT_COORDINATOR, f"committed offsets of group {group!r}")
    return node_id
