"""Negotiates the version of each API.

Source: protocol guide "Retrieving Supported API versions", KIP-35, KIP-511, KIP-584, KIP-1242.

A client uses the highest ApiVersions version it supports. A broker without that version answers UNSUPPORTED_VERSION in
the encoding of version 0; since 2.4 it adds its own range of ApiVersions.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

HIGHEST_VERSION = 4
IDENTITY_VERSION = 5  # only adds the identity check (since 4.4): used when there is one to check
_ERROR_AND_COUNT = struct.Struct(">hi")
_RANGE = struct.Struct(">hhh")


@dataclass(frozen=True, slots=True, repr=False)
class BrokerVersions:
    """The versions and features one broker announced.

    Attributes:
        ranges: API key -> (lowest, highest version). Kafka announces Produce from 0 although it refuses 0-2
            (KAFKA-18659); this client's minimum excludes these.
        finalized_features: Feature name -> level, e.g. transaction.version: 2.
        finalized_features_epoch: Grows with each change of the features; -1 if unknown.
    """

    ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    def usable_version(self, api_key: int, our_min: int, our_max: int) -> int | None:
        """Return the highest version that both sides support, None without one."""
        if api_key not in self.ranges:
            return None
        lowest, highest = self.ranges[api_key]
        version = min(our_max, highest)
        return version if version >= max(our_min, lowest) else None


def versions_request(name: str, version: str, identity: tuple[str, int] | None) -> ApiVersionsRequest:
    """Make the request for the versions, which names the client.

    Args:
        name: Name of the client software.
        version: Its version.
        identity: (cluster id, node id) the broker must have; None: any.
    """
    cluster_id, node_id = identity or (None, -1)
    return ApiVersionsRequest(
        client_software_name=name, client_software_version=version, cluster_id=cluster_id, node_id=node_id
    )


def highest_versions_request(identity: tuple[str, int] | None) -> int:
    """Return the version of the first ApiVersions request."""
    return HIGHEST_VERSION if identity is None else IDENTITY_VERSION


def read_versions(body: memoryview, version: int) -> BrokerVersions:
    """Read an ApiVersions response.

    Raises:
        BrokerError: The broker refused, e.g. with REBOOTSTRAP_REQUIRED because its identity is another.
        CorruptDataError: The bytes violate the format.
    """
    error_code = _error_code(body)
    if error_code:
        raise error_for(error_code, api="API_VERSIONS")
    response = ApiVersionsResponse.decode(body, version)
    return BrokerVersions(
        {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys},
        {feature.name: feature.max_version_level for feature in response.finalized_features},
        response.finalized_features_epoch,
    )


def _error_code(body: memoryview) -> int:
    return int.from_bytes(body[:2], "big", signed=True)


def version_after_refusal(body: memoryview, refused: int) -> int | None:
    """Return the ApiVersions version to try after `body` answered `refused`; None: no refusal, or no version left.

    The range is a hint only. Brokers before 2.4 leave it out, and librdkafka's mock cluster sends a body that is in
    no version's encoding: both mean version 0.
    """
    if refused == 0 or _error_code(body) != ErrorCode.UNSUPPORTED_VERSION:
        return None
    return max(0, min(_announced_maximum(body), refused - 1))


def _announced_maximum(body: memoryview) -> int:
    if len(body) < _ERROR_AND_COUNT.size:
        return 0
    _, count = _ERROR_AND_COUNT.unpack_from(body)
    entries = body[_ERROR_AND_COUNT.size :]
    if count < 0 or count * _RANGE.size != len(entries):
        return 0
    return max((highest for key, _, highest in _RANGE.iter_unpack(entries) if key == ApiKey.API_VERSIONS), default=0)
