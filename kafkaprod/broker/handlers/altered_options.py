"""What AlterConfigs and IncrementalAlterConfigs share: each resource is changed as a whole, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Response


def alter_each(broker: Broker, request: ClientRequest[Any], alter: Callable[[Any], None]) -> Outcome:
    """Alter the resources of a request, in steps; one that is named twice is refused.

    Args:
        broker: Has the control thread, on which this is called.
        request: Names the resources.
        alter: Alters one resource, or raises BrokerError.
    """
    return run_in_control_steps(broker, _alter_each(request, alter), partial(refuse, request))


def _alter_each(request: ClientRequest[Any], alter: Callable[[Any], None]) -> PausingSteps[Response]:
    resources = request.body.resources
    response: Any = refuse(request, ErrorCode.NONE)
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource, answer in zip(resources, response.responses, strict=True):
        try:
            if counts[(resource.resource_type, resource.resource_name)] > 1:
                raise RequestRefusedError(
                    ErrorCode.INVALID_REQUEST, f"{resource.resource_name} is in the request twice."
                )
            alter(resource)
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, str(error)
        yield Pause.SHORT
    altered: Response = response
    return altered
