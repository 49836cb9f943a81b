"""Requests that a test or a window makes from inside the broker: no connection, no login, no ACLs, quotas or faults.

    {"command": "send", "topic": "orders", "partition": 2, "value": "dg==", "key": null, "headers": [], "time": null}
                                                                                                      {"offset": 7}
    {"command": "create", "topic": "orders", "partitions": 3, "configs": {}}                                       {}
    {"command": "delete_records", "topic": "orders", "offsets": {"0": 7}}                          {"starts": {"0": 7}}
    {"command": "retain", "topic": "orders", "now_ms": null}         {"command": "compact", "topic": "orders"}

The handlers of clients do them, on their own threads. A partition that this broker does not lead is left out of the
answers of the last three, and `send` answers NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final, cast

from kafkaprod.broker.calls.request import ClientRequest, CloseConnectionError, Deferred, Lane, Outcome
from kafkaprod.broker.embedding.commands import Command, CommandError, CommandHandler
from kafkaprod.broker.server.router import HANDLERS, call
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.protocol.error_codes import ErrorCode, describe
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.storage.internal_records import build_batch

_TIMEOUT_S: Final = 30.0
_PRODUCE_VERSION, _CREATE_VERSION, _DELETE_VERSION = 12, 7, 2


def own_handlers(server: BrokerServer) -> dict[str, CommandHandler]:
    """Return what a test and a window change in a broker, by the name of the command. Any thread."""
    return {
        "send": lambda command: _send(server, command),
        "create": lambda command: _create(server, command),
        "delete_records": lambda command: _delete_records(server, command),
        "retain": lambda command: _retain(server, command),
        "compact": lambda command: _compact(server, command),
    }


def _ask(server: BrokerServer, body: Request, version: int) -> Response:
    """Have the handler of an API handle a request, on its own thread; return the response."""
    handler = HANDLERS[body.api]
    request = ClientRequest(body, version, "", "", is_peer=True)
    ready: Future[Any] = Future()

    def run() -> None:
        try:
            outcome: Outcome = call(handler, server.broker, request)
        except Exception as error:
            ready.set_exception(error)
            return
        if isinstance(outcome, Deferred):
            outcome.then(ready.set_result)
        else:
            ready.set_result(outcome)

    if handler.LANE is Lane.DATA:
        server.post(run)
    else:
        server.submit_control(run)
    response = ready.result(_TIMEOUT_S)
    if isinstance(response, CloseConnectionError):
        raise CommandError(str(response))
    return cast(Response, response)


def _check(error_code: int, what: str, text: str | None = None) -> None:
    if error_code != ErrorCode.NONE:
        error = describe(error_code)
        raise CommandError(f"{what}: {error.name}: {text or error.text}")


def _send(server: BrokerServer, command: Command) -> Command:
    topic, partition, time_ms = command["topic"], command["partition"], command.get("time")
    headers = [(name, _bytes(value)) for name, value in command.get("headers") or ()]
    record = (_bytes(command.get("key")), _bytes(command.get("value")))
    batch = build_batch([record], server.broker.clock.wall_ms() if time_ms is None else time_ms, headers=headers)
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))]
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=int(_TIMEOUT_S * 1000), topic_data=[data])
    response = cast(ProduceResponse, _ask(server, request, _PRODUCE_VERSION))
    outcome = response.responses[0].partition_responses[0]
    _check(outcome.error_code, f"the record for {topic}-{partition}", outcome.error_message)
    return {"offset": outcome.base_offset}


def _create(server: BrokerServer, command: Command) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in command["configs"].items()]
    topic = CreatableTopic(
        name=command["topic"], num_partitions=command["partitions"], replication_factor=-1, configs=configs
    )
    response = cast(CreateTopicsResponse, _ask(server, CreateTopicsRequest(topics=[topic]), _CREATE_VERSION))
    outcome = response.topics[0]
    _check(outcome.error_code, f"topic {command['topic']!r}", outcome.error_message)


def _delete_records(server: BrokerServer, command: Command) -> Command:
    wanted = [
        DeleteRecordsPartition(partition_index=int(number), offset=offset)
        for number, offset in command["offsets"].items()
        if server.broker.topics.partition(command["topic"], int(number)) is None
        or int(number) in dict(_led_logs(server, command["topic"]))
    ]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=command["topic"], partitions=wanted)])
    response = cast(DeleteRecordsResponse, _ask(server, request, _DELETE_VERSION))
    outcomes = response.topics[0].partitions
    for each in outcomes:
        _check(each.error_code, f"records of {command['topic']}-{each.partition_index}")
    return {"starts": {str(each.partition_index): each.low_watermark for each in outcomes}}


def _led_logs(server: BrokerServer, name: str) -> Iterator[tuple[int, PartitionLog]]:
    topic = server.broker.topics.get(name)
    for number, partition in enumerate(() if topic is None else topic.partitions):
        if partition.is_leader and not partition.is_offline:
            yield number, partition.log


def _retain(server: BrokerServer, command: Command) -> Command:
    """Delete what is too old or too much, in whole segments."""
    starts = {}
    for number, log in _led_logs(server, command["topic"]):
        log.delete_old_segments(command["now_ms"])
        starts[str(number)] = log.log_start_offset
    return {"starts": starts}


def _compact(server: BrokerServer, command: Command) -> Command:
    """Compact all, the newest segment included: it ends first, since the one that is written to stays as it is."""
    starts = {}
    for number, log in _led_logs(server, command["topic"]):
        if not log.config.is_compacted:
            raise CommandError(f"topic {command['topic']!r} is not compacted: its cleanup.policy has no compact")
        log.roll()
        log.compact(is_forced=True)
        starts[str(number)] = log.log_start_offset
    return {"starts": starts}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
