"""CreatePartitions (37): give topics more partitions; in a cluster the controller does. Records stay where they are."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest

API = ApiKey.CREATE_PARTITIONS
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[CreatePartitionsRequest]) -> Outcome:
    """Grow each topic, or only check whether it could grow."""
    return broker.standing.create_partitions(request.body, partial(refuse, request))
