"""UnregisterBroker (64): the controller forgets a broker, and no process of its id counts until it registers again.

It may still have replicas, as in Kafka: they are offline then. A broker that runs notices with its next heartbeat, and
registers again; so the broker is stopped before. A broker alone cannot be forgotten: no other would serve.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kafkaprod.protocol.schema import Response

API = ApiKey.UNREGISTER_BROKER
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(broker: Broker, request: ClientRequest[UnregisterBrokerRequest]) -> Outcome:
    """Forget a broker; BROKER_ID_NOT_REGISTERED if there is none, INVALID_REQUEST if it is the only one."""
    broker_id = request.body.broker_id

    def finish(answer: Response | None) -> Response:
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT) if answer is None else answer

    def is_visible(answer: Response | None) -> bool:
        is_done = isinstance(answer, UnregisterBrokerResponse) and not answer.error_code
        return not is_done or broker_id not in broker.image.brokers or broker_id == broker.config.node_id

    return broker.standing.forward(request.body, finish, is_visible)
