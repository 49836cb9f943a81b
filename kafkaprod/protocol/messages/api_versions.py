r"""ApiVersions (18): which versions of which APIs a broker speaks. The first request of a connection.

The response header is version 0 in every version. A broker that does not know the asked version answers
UNSUPPORTED_VERSION in the encoding of version 0. Software name and version must match
[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?.

    1  throttle time                          4  a feature's lowest version may be 0
    2  response first, then throttling        5  checks cluster and node id (REBOOTSTRAP_REQUIRED if they differ)
    3  flexible; client software, features

Source: KIP-35, KIP-511, KIP-584, KIP-1242.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ApiVersionsRequest(Request, api=ApiKey.API_VERSIONS, versions=(0, 5), flexible_from=3):
    """Requests the versions, and names the client."""

    client_software_name: str = field(STRING, since=3, ignorable=True)
    client_software_version: str = field(STRING, since=3, ignorable=True)
    cluster_id: str | None = field(NULLABLE_STRING, since=5, ignorable=True)
    node_id: int = field(INT32, since=5, default=-1, ignorable=True)


class ApiVersion(Struct):
    """The versions of one API, both ends included."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    """The levels of a feature this broker could run."""

    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class FinalizedFeatureKey(Struct):
    """The level of a feature the cluster runs."""

    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


class ApiVersionsResponse(Response, api=ApiKey.API_VERSIONS, versions=(0, 5), flexible_from=3):
    """The versions the broker speaks, and the features of the cluster."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(array(SupportedFeatureKey), since=3, tag=0, ignorable=True)
    finalized_features_epoch: int = field(INT64, since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), since=3, tag=2, ignorable=True)
    zk_migration_ready: bool = field(BOOL, since=3, tag=3, ignorable=True)
