"""Faults for parts of a request: what a request is about, and how the rest of it works.

    a part of                                                   what happens
    Produce, OffsetCommit, TxnOffsetCommit, DeleteRecords,      the handler does not get it; its refusal is added to the
    CreateTopics, Fetch, ListOffsets, OffsetForLeaderEpoch      answer. A fetch is then answered at once, as in Kafka
    Metadata, OffsetFetch                                       the handler's answer is changed; a topic as a whole is
                                                                not created
    AddPartitionsToTxn                                          nothing is added: OPERATION_NOT_ATTEMPTED for the others

A fault that is answered after the handling lets the handler have its parts, and changes the answer. Requests that only
read are the same with and without.
With acks=0 there is no answer: the connection is closed, as with topics that ACLs refuse.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.faults import Fault, FaultKind, RequestPart, Subject
from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import (
    ClientRequest,
    CloseConnectionError,
    Deferred,
    NoResponse,
    Outcome,
    Ready,
)
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import move_leaders, name_leaders
from kafkaprod.broker.server.router import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Response

_TRANSACTION_KEYS: Final = 1  # key type of FindCoordinator

_COUNT_AT, _COUNT_END = 57, 61
"""Where a record batch has the number of its records."""

CallHandler = Callable[[ClientRequest[Any]], Outcome]


class _Fields(NamedTuple):
    """Where an API has its topics and partitions: attributes of the request, and of the answer.

    `partition` is empty where the element is the number itself; `partitions` where there are only topics.
    """

    topics: str
    partitions: str = "partitions"
    partition: str = "partition_index"
    results: str = "topics"
    result_partitions: str = "partitions"
    result_partition: str = "partition_index"


_SPLIT: Final[Mapping[ApiKey, _Fields]] = {
    ApiKey.PRODUCE: _Fields("topic_data", "partition_data", "index", "responses", "partition_responses", "index"),
    ApiKey.FETCH: _Fields("topics", partition="partition", results="responses"),
    ApiKey.LIST_OFFSETS: _Fields("topics"),
    ApiKey.OFFSET_COMMIT: _Fields("topics"),
    ApiKey.TXN_OFFSET_COMMIT: _Fields("topics"),
    ApiKey.DELETE_RECORDS: _Fields("topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Fields("topics", partition="partition", result_partition="partition"),
    ApiKey.CREATE_TOPICS: _Fields("topics", partitions=""),
}


_READING: Final = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH})


def subject_of(broker: Broker, request: ClientRequest[Any]) -> Subject:
    """Return what a request is about."""
    body = request.body
    groups = [text for text in (getattr(body, "group_id", None),) if text]
    named = getattr(body, "transactional_id", None) or getattr(body, "v3_and_below_transactional_id", None)
    ids = [named] if named else []
    if body.api is ApiKey.OFFSET_FETCH and getattr(body, "groups", None):
        groups = [each.group_id for each in body.groups]
    elif body.api is ApiKey.FIND_COORDINATOR:
        keys = list(body.coordinator_keys) or [body.key]
        groups, ids = ([], keys) if body.key_type == _TRANSACTION_KEYS else (keys, [])
    elif body.api is ApiKey.ADD_PARTITIONS_TO_TXN and body.transactions:
        ids = [each.transactional_id for each in body.transactions]
    parts = list(_parts(broker, body))
    return Subject(body.api, request.client_id, broker.config.node_id, groups, ids, parts)


def note_request(broker: Broker, request: ClientRequest[Any], body_bytes: int) -> None:
    """Add a request to the log of requests."""
    log = broker.request_log
    if log is None:
        return
    about, body = subject_of(broker, request), request.body
    records = 0
    if body.api is ApiKey.PRODUCE:
        batches = [each.records for topic in body.topic_data for each in topic.partition_data if each.records]
        records = sum(int.from_bytes(batch[_COUNT_AT:_COUNT_END], "big") for batch in batches)
    log.note(
        broker.clock.wall_ms(),
        body.api,
        request.version,
        request.client_id,
        request.client_host,
        body_bytes,
        about.parts,
        about.groups,
        about.transactional_ids,
        records,
    )


def _parts(broker: Broker, body: Any) -> Iterator[RequestPart]:
    fields = _SPLIT.get(body.api)
    if fields is not None:
        for topic in getattr(body, fields.topics):
            name = _name_of(broker, topic)
            if not fields.partitions:
                yield name, None
            for each in getattr(topic, fields.partitions) if fields.partitions else ():
                yield name, getattr(each, fields.partition)
    elif body.api is ApiKey.METADATA:
        known = broker.topics.table()
        names = list(known) if body.topics is None else [_name_of(broker, each) for each in body.topics]
        for name in names:
            yield name, None
            for number in range(len(known[name].partitions) if name in known else 0):
                yield name, number
    elif body.api is ApiKey.ADD_PARTITIONS_TO_TXN:
        for topics in [body.v3_and_below_topics] if not body.transactions else [t.topics for t in body.transactions]:
            yield from ((topic.name, number) for topic in topics for number in topic.partitions)
    elif body.api is ApiKey.OFFSET_FETCH:
        for group in body.groups or [body]:
            for topic in group.topics or ():
                yield from ((_name_of(broker, topic), number) for number in topic.partition_indexes)


def _name_of(broker: Broker, topic: Any) -> str:
    topic_id = getattr(topic, "topic_id", None)
    name = getattr(topic, "name", None) or getattr(topic, "topic", None) or ""
    return broker.topics.name_of(name, topic_id) or "" if topic_id is not None and not name else name


def call_with_faults(
    broker: Broker, request: ClientRequest[Any], hit: Mapping[RequestPart, Fault], handle: CallHandler
) -> Outcome:
    """Handle the rest of a request, and refuse the parts that are hit.

    Raises:
        CloseConnectionError: A part of an acks=0 request is hit.
    """
    outcome: Outcome
    codes = {part: _code_of(fault) for part, fault in hit.items()}
    api = request.body.api
    applied = {} if api in _READING else {part: codes[part] for part, fault in hit.items() if _is_applied(fault)}
    if api is ApiKey.ADD_PARTITIONS_TO_TXN:
        if len(applied) < len(hit):
            return _refuse_adding(request, codes)
        return _changed_later(handle(request), lambda ready: _change_adding(ready, codes))
    fields = _SPLIT.get(api)
    if fields is None:
        return _changed_later(
            handle(_without_topics(broker, request, codes)), lambda ready: _change(broker, ready, request, codes)
        )
    if applied:
        before = {part: fault for part, fault in hit.items() if part not in applied}
        outcome = call_with_faults(broker, request, before, handle) if before else handle(request)
        _, answers = _split(broker, request, {}, applied, fields)
        if request.body.api is ApiKey.PRODUCE and request.body.acks == 0:
            raise CloseConnectionError("a fault hits a part of an acks=0 request")
        assert answers is not None  # each part that is hit is one of the request
        return _changed_later(outcome, lambda ready: _replace_parts(broker, ready, answers, applied, fields))
    rest, refused = _split(broker, request, hit, codes, fields)
    if rest is None:
        outcome = NoResponse.NO_RESPONSE if refused is None else refused
    else:
        outcome = handle(rest)
    if api is ApiKey.PRODUCE and request.body.acks == 0:
        raise CloseConnectionError("a fault hits a part of an acks=0 request")
    if rest is None or refused is None:
        return outcome
    return _changed_later(outcome, lambda ready: _merge(ready, refused, fields))


def _is_applied(fault: Fault) -> bool:
    return fault.kind is FaultKind.REPLY_AFTER_HANDLING


def _code_of(fault: Fault) -> int:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if fault.kind is FaultKind.MOVE_LEADER else fault.value


def _split(
    broker: Broker,
    request: ClientRequest[Any],
    hit: Mapping[RequestPart, Fault],
    codes: Mapping[RequestPart, int],
    fields: _Fields,
) -> tuple[ClientRequest[Any] | None, Response | None]:
    """Return the request without the parts that are hit, None if nothing is left, and the answer to these."""
    left: list[Any] = []
    taken: dict[int, list[Any]] = {}
    moved: list[Any] = []
    for topic in getattr(request.body, fields.topics):
        name = _name_of(broker, topic)
        if not fields.partitions:
            code = codes.get((name, None))
            (left if code is None else taken.setdefault(code, [])).append(topic)
            continue
        groups: dict[int | None, list[Any]] = {}
        for each in getattr(topic, fields.partitions):
            part = (name, getattr(each, fields.partition))
            groups.setdefault(codes.get(part), []).append(each)
            if part in hit and hit[part].kind is FaultKind.MOVE_LEADER:
                moved.append(_with(topic, fields.partitions, [each]))
        for code, partitions in groups.items():
            (left if code is None else taken.setdefault(code, [])).append(_with(topic, fields.partitions, partitions))
    if moved:
        move_leaders(broker, _with(request.body, fields.topics, moved))
    refused: Response | None = None
    for code, topics in taken.items():
        answer = refuse(replace(request, body=_with(request.body, fields.topics, topics)), code)
        name_leaders(broker, answer, request.version, request.endpoint or broker.endpoint)
        if hasattr(answer, "error_code"):
            answer.error_code = ErrorCode.NONE
        refused = answer if refused is None else _merged(refused, answer, fields)
    if not left:
        return None, refused
    body = _with(request.body, fields.topics, left)
    if body.api is ApiKey.FETCH:
        body.max_wait_ms = 0
    return replace(request, body=body), refused


def _with(message: Any, name: str, value: Any) -> Any:
    changed = copy.copy(message)
    setattr(changed, name, value)
    return changed


def _changed_later(outcome: Outcome, change: Callable[[Ready], Ready]) -> Outcome:
    """Change what a handler answers, when it does."""
    if not isinstance(outcome, Deferred):
        changed: Any = change(outcome)
        found: Outcome = changed
        return found
    later = Deferred()
    later.on_abandon = outcome.abandon
    outcome.then(lambda ready: later.complete(change(ready)))
    return later


def _merge(ready: Ready, refused: Response, fields: _Fields) -> Ready:
    response = ready.response if isinstance(ready, FileResponse) else ready
    if isinstance(response, Response):
        _merged(response, refused, fields)
        for endpoint in getattr(refused, "node_endpoints", ()):
            if endpoint not in response.node_endpoints:  # type: ignore[attr-defined]
                response.node_endpoints.append(endpoint)  # type: ignore[attr-defined]
    return ready


def _replace_parts(
    broker: Broker, ready: Ready, answers: Response, applied: Mapping[RequestPart, int], fields: _Fields
) -> Ready:
    """Put errors in place of what the handler answers for some parts."""
    if not isinstance(ready, Response):
        return ready
    kept: list[Any] = []
    for topic in getattr(ready, fields.results):
        name = _name_of(broker, topic)
        if not fields.partitions:
            kept += [] if (name, None) in applied else [topic]
            continue
        partitions = getattr(topic, fields.result_partitions)
        left = [each for each in partitions if (name, getattr(each, fields.result_partition)) not in applied]
        setattr(topic, fields.result_partitions, left)
        kept += [topic] if left else []
    setattr(ready, fields.results, kept)
    return _merge(ready, answers, fields)


def _merged(response: Response, further: Response, fields: _Fields) -> Response:
    """Add the topics of an answer to another one; those that are there get the further partitions behind theirs."""
    topics = getattr(response, fields.results)
    known = {_key(topic): topic for topic in topics}
    for topic in getattr(further, fields.results):
        own = known.get(_key(topic)) if fields.partitions else None
        if own is None:
            topics.append(topic)
        else:
            getattr(own, fields.result_partitions).extend(getattr(topic, fields.result_partitions))
    return response


def _key(topic: Any) -> tuple[Any, Any]:
    return getattr(topic, "topic_id", None), getattr(topic, "name", None) or getattr(topic, "topic", None)


def _refuse_adding(request: ClientRequest[Any], codes: Mapping[RequestPart, int]) -> Response:
    """Refuse all partitions: Kafka adds nothing if one of them cannot be added."""
    response: Any = refuse(request, ErrorCode.OPERATION_NOT_ATTEMPTED)
    if hasattr(response, "error_code"):
        response.error_code = ErrorCode.NONE
    refused: Response = _change_adding(response, codes)  # type: ignore[assignment]
    return refused


def _change_adding(ready: Ready, codes: Mapping[RequestPart, int]) -> Ready:
    """Put errors into the answer to AddPartitionsToTxn."""
    response: Any = ready
    found = [response.results_by_topic_v3_and_below, *(each.topic_results for each in response.results_by_transaction)]
    for topics in found:
        for topic in topics:
            for each in topic.results_by_partition:
                each.partition_error_code = codes.get((topic.name, each.partition_index), each.partition_error_code)
    return ready


def _without_topics(
    broker: Broker, request: ClientRequest[Any], codes: Mapping[RequestPart, int]
) -> ClientRequest[Any]:
    """Leave out of a Metadata request the topics that are hit as a whole, so that they are not created."""
    body = request.body
    if body.api is not ApiKey.METADATA or body.topics is None:
        return request
    left = [topic for topic in body.topics if (_name_of(broker, topic), None) not in codes]
    return replace(request, body=_with(body, "topics", left))


def _change(broker: Broker, ready: Ready, request: ClientRequest[Any], codes: Mapping[RequestPart, int]) -> Ready:
    """Put errors into the answer to Metadata or OffsetFetch."""
    response: Any = ready
    if request.body.api is ApiKey.METADATA:
        shown = {topic.name for topic in response.topics}
        for code, names in _by_code(codes).items():
            asked = [each for each in request.body.topics or () if _name_of(broker, each) in names - shown]
            if asked:
                refused: Any = refuse(replace(request, body=_with(request.body, "topics", asked)), code)
                response.topics.extend(refused.topics)
        for topic in response.topics:
            if (topic.name, None) in codes:
                topic.error_code, topic.partitions = codes[topic.name, None], []
            for each in topic.partitions:
                if (topic.name, each.partition_index) in codes:
                    each.error_code, each.leader_id = codes[topic.name, each.partition_index], -1
        return ready
    for group in getattr(response, "groups", None) or [response]:
        for topic in group.topics:
            name = _name_of(broker, topic)
            for each in topic.partitions:
                if (name, each.partition_index) in codes:
                    each.error_code, each.committed_offset = codes[name, each.partition_index], -1
    return ready


def _by_code(codes: Mapping[RequestPart, int]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for (topic, partition), code in codes.items():
        if partition is None:
            found.setdefault(code, set()).add(topic)
    return found
