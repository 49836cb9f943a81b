"""Producer id and epoch of batches, and the requests that must come before sending.

`Identity` is what the loop, the answers and the upkeep use. `IdempotentIdentity` serves producers without transactions;
a transaction manager is another implementation. Sender thread only.

    loop: wanted(now_ms) -> IdentityRequest -> on_sent() -> the network -> on_response()
    drain: takes no batch of an idempotent producer before `Drain.set_producer` was called
Source: org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360 (epoch bump).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.settlement import BatchRef, abort_batches
from kafkaprod.errors import AuthenticationError, CorruptDataError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.schema import Request
from kafkaprod.retry import ExponentialBackoff

MAX_EPOCH: Final = 32_767
MAX_WAIT_MS: Final = 60_000
MAX_DAMAGED_ANSWERS: Final = 5  # in a row; then queued records fail
NO_TRANSACTION_TIMEOUT: Final = 0x7FFFFFFF

logger = logging.getLogger("kafkaprod.engine.identity")


def no_producer_id(code: int, **context: Any) -> KafkaError:
    """Return the error of a cluster that gave no producer id, with what to do about it."""
    advice = ""
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        advice = "grant IdempotentWrite on the cluster, or Write on a topic, or set enable_idempotence=false"
    elif not describe(code).retriable:
        advice = (
            "if this cluster takes no idempotent producers, set enable_idempotence=false; a record "
            "whose answer is lost may then be written twice"
        )
    return error_for(code, about="the cluster gave no producer id", advice=advice, **context)


class IdentityRequest(NamedTuple):
    """A request to send now.

    Attributes:
        request: The request.
        node_id: Its broker, such as a coordinator; None: any broker.
        versions: Lowest and highest version allowed; None: any that both sides support.
        in_version: Makes the request for a version; None: `request` fits all versions.
    """

    request: Request
    node_id: int | None = None
    versions: tuple[int, int] | None = None
    in_version: Callable[[int], Request] | None = None


class Identity(Protocol):
    """The producer's id, epoch and transactions, as the sender thread uses them.

    Attributes:
        transactional_id: Sent in every produce request; None: no transactions.
        keeps_producer_id: Whether id and epoch never change; a batch that needs a newer epoch fails.
        may_split: Whether a batch that is too large for a broker may be cut in two.
        produce_versions: Lowest and highest version of produce requests.
        is_ending: Whether a transaction ends as soon as its batches have their outcomes.
        last_refusal: Why the last request that batches or a call wait for was refused, or not answered; None: it was
            neither.
    """

    transactional_id: str | None
    keeps_producer_id: bool
    may_split: bool

    @property
    def produce_versions(self) -> tuple[int, int]: ...

    @property
    def is_ending(self) -> bool: ...

    @property
    def last_refusal(self) -> KafkaError | None: ...

    def wanted(self, now_ms: int) -> IdentityRequest | None:
        """Return the request to send now; None if there is none or one is in flight. Repeated calls are harmless."""
        ...

    def delay_ms(self, now_ms: int) -> int:
        """Return how long `wanted` will certainly return None; MAX_WAIT_MS: until an answer or a `wakeup`."""
        ...

    def on_sent(self, wanted: IdentityRequest) -> None:
        """Note that the request was sent; `on_response` will follow."""
        ...

    def on_response(self, wanted: IdentityRequest, done: InFlightRequest, now_ms: int) -> None:
        """Take the outcome of a request: `done.response`, or `done.error`."""
        ...

    def on_unsendable(self, wanted: IdentityRequest, error: KafkaError, now_ms: int) -> None:
        """Handle a request that was not sent: its node is unreachable or supports no version of it."""
        ...

    def on_refused_connection(self, error: AuthenticationError) -> None:
        """Handle that a broker refused the credentials."""
        ...

    def may_drain(self) -> bool:
        """Return whether batches may be sent now."""
        ...

    def is_finished(self, now_ms: int) -> bool:
        """End an open transaction because the producer closes; return whether only batches are left to settle."""
        ...

    def on_new_cluster(self) -> bool:
        """Handle that the cluster is another one now; return whether batches need numbers of a new producer id."""
        ...

    def note_cluster(self, *, is_known: bool) -> None:
        """Note whether metadata has named the cluster since the last connection ended: the next may be another's."""
        ...

    def on_batch_failed(self, ref: BatchRef, error: KafkaError) -> None:
        """Handle a batch that fails; called before its records get the error."""
        ...

    def on_end(self, error: KafkaError) -> None:
        """Fail the calls that wait for an answer: the sender thread ends."""
        ...


class IdempotentIdentity:
    """Producer id and epoch of a producer without transactions.

    Args:
        accumulator: Its batches fail when the cluster refuses an id.
        drain: Gets id and epoch; requests a new epoch through `wants_epoch`.
        backoff: Between failed requests.
        random: Source of jitter.
        is_idempotent: False: no id is ever requested.
        keeps_producer_id: Whether the drain has an id and epoch that never change.
    """

    transactional_id: str | None = None
    produce_versions = (3, 13)
    is_ending = False
    last_refusal: KafkaError | None = None

    def __init__(
        self,
        accumulator: Accumulator,
        drain: Drain,
        backoff: ExponentialBackoff,
        random: Callable[[], float],
        *,
        is_idempotent: bool,
        keeps_producer_id: bool = False,
    ) -> None:
        self.keeps_producer_id = keeps_producer_id
        self.may_split = not keeps_producer_id
        self._accumulator = accumulator
        self._drain = drain
        self._backoff = backoff
        self._random = random
        self._is_idempotent = is_idempotent
        self._is_requested = False
        self._failure_count = 0
        self._damaged_count = 0
        self._next_request_ms = 0
        self._least_epoch = 0
        self._is_cluster_known = True

    def wanted(self, now_ms: int) -> IdentityRequest | None:
        """Return a request for a producer id, before the first drain and when the last epoch is used up."""
        if not self._is_idempotent:
            return None
        if self._drain.wants_epoch:
            self._start_epoch()
        if self._drain.producer_id >= 0 or self._is_requested or now_ms < self._next_request_ms:
            return None
        return IdentityRequest(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT)
        )

    def delay_ms(self, now_ms: int) -> int:
        """Return the rest of the backoff; MAX_WAIT_MS when nothing is missing or a request is in flight."""
        if not self._is_idempotent or self._drain.producer_id >= 0 or self._is_requested:
            return MAX_WAIT_MS
        return max(self._next_request_ms - now_ms, 0)

    def on_sent(self, wanted: IdentityRequest) -> None:
        """Note the request in flight; there is one at a time."""
        self._is_requested = True

    def on_response(self, wanted: IdentityRequest, done: InFlightRequest, now_ms: int) -> None:
        """Take id and epoch, or try again after a backoff; a final refusal fails the queued records."""
        self._is_requested = False
        error = done.error if done.error is not None else self._take(done.response, done.node_id)
        self.last_refusal = error
        if error is None:
            self._failure_count = self._damaged_count = 0
            return
        if isinstance(error, CorruptDataError):
            self._damaged_count += 1
        if self._damaged_count >= MAX_DAMAGED_ANSWERS or not (error.retriable or isinstance(error, CorruptDataError)):
            self._damaged_count = 0
            abort_batches(self._accumulator, error)
        delay_ms = self._backoff.delay_ms(self._failure_count, self._random)
        self._failure_count += 1
        self._next_request_ms = now_ms + delay_ms

    def on_unsendable(self, wanted: IdentityRequest, error: KafkaError, now_ms: int) -> None:
        """Do nothing: its requests go to any broker, in any version."""

    def on_refused_connection(self, error: AuthenticationError) -> None:
        """Do nothing: another broker may accept them."""

    def is_finished(self, now_ms: int) -> bool:
        """Return True: nothing is ever open."""
        return True

    def may_drain(self) -> bool:
        """Return whether the cluster is known to be that of the id, if it is kept; else the drain looks at the id."""
        return self._is_cluster_known

    def on_new_cluster(self) -> bool:
        """Request an id of the new cluster: another producer may have the old one there.

        Its epoch is higher than any before, so that no partition takes an id that both clusters gave for its own.
        """
        if not self._is_idempotent or self.keeps_producer_id:
            return False
        self._least_epoch = max(self._least_epoch, self._drain.producer_epoch) + 1
        self._drain.set_producer(-1, -1)
        return True

    def note_cluster(self, *, is_known: bool) -> None:
        """Send nothing under a kept id before metadata has named its cluster: another one would take the records."""
        self._is_cluster_known = is_known or not self.keeps_producer_id

    def on_batch_failed(self, ref: BatchRef, error: KafkaError) -> None:
        """Do nothing: the drain starts a new epoch where a sequence is missing."""

    def on_end(self, error: KafkaError) -> None:
        """Do nothing: no call waits."""

    def _take(self, response: InitProducerIdResponse, node_id: int) -> KafkaError | None:
        """Apply the answer; return why it is unusable, None if it is not."""
        if response.error_code != ErrorCode.NONE:
            return no_producer_id(response.error_code, node=node_id)
        if response.producer_id < 0 or response.producer_epoch < 0:
            return CorruptDataError(
                f"node {node_id} answered InitProducerId with producer id {response.producer_id} and epoch "
                f"{response.producer_epoch}: neither may be negative",
                node=node_id,
            )
        epoch = min(max(response.producer_epoch, self._least_epoch), MAX_EPOCH)
        self._drain.set_producer(response.producer_id, epoch)
        return None

    def _start_epoch(self) -> None:
        """Raise the epoch without the broker (KIP-360); when epochs are used up, request a new id."""
        drain = self._drain
        if self.keeps_producer_id:
            what = "records before these were not written, and the producer must keep its id and epoch"
            abort_batches(self._accumulator, error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, about=what))
            drain.set_producer(drain.producer_id, drain.producer_epoch)
        elif drain.producer_epoch < MAX_EPOCH:
            drain.set_producer(drain.producer_id, drain.producer_epoch + 1)
        else:
            drain.set_producer(-1, -1)
