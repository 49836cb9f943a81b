"""Levels of features: what UpdateFeatures may change. Handlers are pure.

Source: Kafka, FeatureControlManager; KIP-584, KIP-778, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.events import Decision
from kafkaprod.broker.metadata.features import DEFAULT_LEVELS, SUPPORTED, reason_not_supported
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.records import FeatureLevelRecord
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UNKNOWN: Final = (0, 0)


class UpgradeType(IntEnum):
    """The kinds of a change of a level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


_UPGRADE_TYPES: Final = frozenset(UpgradeType)


def missing_levels(image: ClusterImage, wanted: Mapping[str, int]) -> Iterator[FeatureLevelRecord]:
    """Yield the records that a starting controller writes: levels that were never set, and those that are wanted now.

    Args:
        image: The metadata so far.
        wanted: Levels that features shall have, whatever they had.
    """
    for name, level in {**DEFAULT_LEVELS, **image.features, **wanted}.items():
        if image.features.get(name) != level:
            yield FeatureLevelRecord(name=name, feature_level=level)


def update(context: ControllerContext, request: UpdateFeaturesRequest, now_ms: int) -> Decision:
    """Change levels, all or none; or only check whether they could be changed.

    Refused: INVALID_UPDATE_VERSION, with the first feature's reason.
    """
    records = []
    for name, wanted in {each.feature: each for each in request.feature_updates}.items():
        level = wanted.max_version_level
        reason = _refusal(context, name, level, wanted.upgrade_type)
        if reason is not None:
            message = f"Invalid update version {level} for feature {name}. {reason}"
            refused = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
            return Decision([], refused)
        records.append(FeatureLevelRecord(name=name, feature_level=level))
    results = [UpdatableFeatureResult(feature=record.name) for record in records]
    return Decision([] if request.validate_only else list(records), UpdateFeaturesResponse(results=results))


def _refusal(context: ControllerContext, name: str, level: int, upgrade_type: int) -> str | None:
    """Return why a change of a level is refused, None if it is not."""
    if upgrade_type not in _UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    reason = reason_not_supported(level, f"Local controller {context.voter_id}", SUPPORTED.get(name, _UNKNOWN))
    for broker in context.image.brokers.values():
        bounds = broker.features.get(name, _UNKNOWN)
        reason = reason or reason_not_supported(level, f"Broker {broker.broker_id}", bounds)
    if reason is not None:
        return reason
    if name not in SUPPORTED:  # level 0 of what there is not
        return f"Feature {name} not found."
    now = context.image.features.get(name, 0)
    if level < now and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > now and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None
