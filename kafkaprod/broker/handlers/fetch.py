"""Fetch (1): read record batches from some partitions, waiting for them if there are none yet.

    7    fetch sessions (KIP-227): followers have them (`cluster.follower_fetches`), clients do not. Every answer to a
         client has session id 0, so clients send full requests. Epochs -1 and 0 are full requests, whatever the id is
    9    current leader epoch, checked (KIP-320)     12  last fetched epoch, checked (KIP-595)
    13   topic ids instead of names (KIP-516)
    16   current leader with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951)
Records are whole batches, the first of them containing the fetch offset; the last may be cut. They are not read here:
the response names a range of the log file. A fetch of many partitions is read, and waits, in slices of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafkaprod.broker.calls.request import ClientRequest, Deferred, Lane, Outcome
from kafkaprod.broker.calls.steps import finish_now, run_in_loop_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.handlers.fetch_reading import Read, failed, least_bytes, read_steps
from kafkaprod.broker.handlers.fetch_waiting import WaitingFetch
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import CLUSTER, TOPIC
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from kafkaprod.structs import TopicPartition

API = ApiKey.FETCH
LANE = Lane.DATA
MAX_VERSION = 18

_RIGHT: Final = ItemRight(acls.READ, TOPIC, "topics", "responses", "topic")
_FULL_FETCH_EPOCHS = (-1, 0)
_FEW_PARTITIONS = 32
"""Reading them takes a millisecond: less work than keeping account of each."""


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the topics; whoever fetches as a replica needs CLUSTER_ACTION, as brokers have it."""
    body = authorizer.request.body
    if max(body.replica_id, body.replica_state.replica_id) < 0:
        return authorizer.split(call, deny, _RIGHT)
    if authorizer.may(acls.CLUSTER_ACTION, CLUSTER):
        return call(authorizer.request)
    response: Any = deny(authorizer.request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response.error_code = ErrorCode.NONE
    return response


def handle(broker: Broker, request: ClientRequest[FetchRequest]) -> Outcome:
    """Answer at once if there is enough, else when there is or the time is over."""
    body = request.body
    if request.is_peer:
        return broker.standing.fetch_by_follower(body)
    if body.session_epoch not in _FULL_FETCH_EPOCHS:
        return refuse(request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    wanted = [
        (TopicPartition(name, partition.partition), partition)
        for topic in body.topics
        if (name := broker.topics.name_of(topic.topic, topic.topic_id)) is not None
        for partition in topic.partitions
    ]
    by_key = dict(wanted)
    if len(by_key) < len(wanted):
        return refuse(request, ErrorCode.INVALID_REQUEST)  # a partition is named twice
    deadline_ms = broker.clock.now_ms() + body.max_wait_ms

    def answer_or_wait(read: Read) -> Outcome:
        is_enough = read.is_final or read.bytes_read >= least_bytes(broker, request)
        if is_enough or broker.clock.now_ms() >= deadline_ms or not by_key:
            return read.response
        if len(by_key) <= _FEW_PARTITIONS:
            return _wait_for_few(broker, request, list(by_key), deadline_ms)
        return WaitingFetch(broker, request, by_key, lambda: read_all(lambda read: read.response)).begin(deadline_ms)

    def read_all(finish: Callable[[Read], Outcome]) -> Outcome:
        return run_in_loop_steps(
            broker, read_steps(broker, request), finish, lambda error_code: refuse(request, error_code)
        )

    return read_all(answer_or_wait)


def refuse(request: ClientRequest[FetchRequest], error_code: int) -> FetchResponse:
    """Answer the error at the top, and for every partition."""
    return FetchResponse(
        error_code=error_code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[failed(wanted.partition, error_code) for wanted in topic.partitions],
            )
            for topic in request.body.topics
        ],
    )


def _wait_for_few(
    broker: Broker, request: ClientRequest[FetchRequest], keys: list[TopicPartition], deadline_ms: int
) -> Deferred:
    """Read all partitions again each time one of them has moved."""
    deferred = Deferred()

    def try_complete(is_expired: bool) -> bool:
        again = finish_now(read_steps(broker, request))
        is_complete = is_expired or again.is_final or again.bytes_read >= least_bytes(broker, request)
        if is_complete:
            deferred.complete(again.response)
        return is_complete

    operation = broker.purgatory.watch(keys, deadline_ms, try_complete)
    deferred.on_abandon = lambda: broker.purgatory.cancel(operation)
    return deferred
