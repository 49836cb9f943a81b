"""DescribeQuorum (55): the controller answers, a quorum of one.

A broker alone has its controller inside: the same node is the only voter.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, Listener
from kafkaprod.protocol.schema import Response

API = ApiKey.DESCRIBE_QUORUM
LANE = Lane.CONTROL
MAX_VERSION = 2

_FIRST_VERSION_WITH_NODES = 2


def handle(broker: Broker, request: ClientRequest[DescribeQuorumRequest]) -> Outcome:
    """Have the controller describe partition 0 of the metadata, which is the only one."""
    return broker.standing.forward(request.body, lambda answer: _finish(broker, request, answer))


def _finish(broker: Broker, request: ClientRequest[DescribeQuorumRequest], answer: Response | None) -> Response:
    """Add what only this broker knows of itself, if it is the voter."""
    if not isinstance(answer, DescribeQuorumResponse):
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
    node_id, now_ms = broker.config.node_id, broker.clock.wall_ms()
    for partition in (partition for topic in answer.topics for partition in topic.partitions):
        for voter in partition.current_voters:
            if voter.replica_id == node_id:
                voter.last_fetch_timestamp = voter.last_caught_up_timestamp = now_ms
    place = request.endpoint or broker.endpoint
    for node in answer.nodes:
        if node.node_id == node_id:
            node.listeners = [Listener(name="CONTROLLER", host=place.host, port=place.port)]
    if request.version < _FIRST_VERSION_WITH_NODES:
        answer.nodes = []
    return answer
