"""UpdateFeatures (57): raise, lower or remove the levels of a cluster's features.

    1  the kind of change, changes that are only checked (KIP-584, KIP-778)
    2  one error for the whole request

Source: KIPs above, KIP-1022.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class FeatureUpdateKey(Struct):
    """The level that a feature shall have; 0 removes it. Kinds: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOL, until=0)
    upgrade_type: int = field(INT8, since=1, default=1)


class UpdateFeaturesRequest(Request, api=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible_from=0):
    """Changes of levels, all of them or none."""

    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, since=1)


class UpdatableFeatureResult(Struct):
    """The outcome for one feature."""

    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


class UpdateFeaturesResponse(Response, api=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible_from=0):
    """The outcome of all, and for each feature if there was no error."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), until=1, ignorable=True)
