"""UpdateFeatures (57): the controller answers, the same in a cluster and inside a broker alone.

A level counts as soon as a broker's metadata shows it: clients learn it from their next ApiVersions.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.UPDATE_FEATURES
LANE = Lane.CONTROL
MAX_VERSION = 2

_PREFIX = "The update failed for all features since the following feature had an error: "


def handle(broker: Broker, request: ClientRequest[UpdateFeaturesRequest]) -> Outcome:
    """Change all levels or none; the first error is the answer to the whole request."""
    body = request.body
    wanted = {each.feature: each.max_version_level for each in body.feature_updates}
    # What version 0 says of downgrades counts for nothing, as in Kafka.
    updates = [
        FeatureUpdateKey(feature=each.feature, max_version_level=each.max_version_level, upgrade_type=each.upgrade_type)
        for each in body.feature_updates
    ]
    forwarded = UpdateFeaturesRequest(feature_updates=updates, validate_only=body.validate_only)

    def is_visible(answer: Response | None) -> bool:
        is_changed = isinstance(answer, UpdateFeaturesResponse) and not answer.error_code
        if not is_changed or body.validate_only:
            return True
        levels = broker.image.features
        return all(levels.get(name) == level for name, level in wanted.items())

    return broker.standing.forward(forwarded, lambda answer: _finish(request, answer), is_visible)


def _finish(request: ClientRequest[UpdateFeaturesRequest], answer: Response | None) -> Response:
    if not isinstance(answer, UpdateFeaturesResponse):
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
    if answer.error_code == ErrorCode.INVALID_UPDATE_VERSION:
        answer.error_message = f"{_PREFIX}{answer.error_message}"
    return answer
