"""Refusals that are derived from the declared response: every part of the request is answered with the error."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.server.router import HANDLERS, REFUSALS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.protocol.schema import Request, Struct
from tests.support.net.protocol_samples import build, distinct_values

ANSWERS = {
    (ApiKey.PRODUCE, 3): "((4 (5 87 -1) (7 87 -1)) (9 (10 87 -1) (12 87 -1)))",
    (ApiKey.PRODUCE, 13): "((id4 (5 87 -1) (7 87 -1)) (id9 (10 87 -1) (12 87 -1)))",
    (ApiKey.LIST_OFFSETS, 1): "((2 (3 87) (5 87)) (7 (8 87) (10 87)))",
    (ApiKey.LIST_OFFSETS, 11): "((3 (4 87) (7 87)) (10 (11 87) (14 87)))",
    (ApiKey.OFFSET_COMMIT, 2): "((5 (6 87) (9 87)) (12 (13 87) (16 87)))",
    (ApiKey.OFFSET_COMMIT, 10): "((id5 (6 87) (10 87)) (id14 (15 87) (19 87)))",
    (ApiKey.OFFSET_FETCH, 1): "()",
    (ApiKey.OFFSET_FETCH, 10): "((1 87) (10 87))",
    (ApiKey.FIND_COORDINATOR, 0): "(87 -1 -1)",
    (ApiKey.FIND_COORDINATOR, 6): "((2 -1 -1 87) (3 -1 -1 87))",
    (ApiKey.DESCRIBE_GROUPS, 0): "((87 1) (87 2))",
    (ApiKey.DESCRIBE_GROUPS, 6): "((87 1) (87 2))",
    (ApiKey.CREATE_TOPICS, 2): "((1 87) (14 87))",
    (ApiKey.CREATE_TOPICS, 7): "((1 87) (14 87))",
    (ApiKey.DELETE_RECORDS, 0): "((1 (2 -1 87) (4 -1 87)) (6 (7 -1 87) (9 -1 87)))",
    (ApiKey.DELETE_RECORDS, 2): "((1 (2 -1 87) (4 -1 87)) (6 (7 -1 87) (9 -1 87)))",
    (ApiKey.INIT_PRODUCER_ID, 0): "(87 -1)",
    (ApiKey.INIT_PRODUCER_ID, 5): "(87 -1)",
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2): "((1 (87 2) (87 5)) (8 (87 9) (87 12)))",
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4): "((2 (87 3) (87 6)) (9 (87 10) (87 13)))",
    (
        ApiKey.WRITE_TXN_MARKERS,
        1,
    ): "((1 (4 (5 87) (6 87)) (7 (8 87) (9 87))) (11 (14 (15 87) (16 87)) (17 (18 87) (19 87))))",
    (
        ApiKey.WRITE_TXN_MARKERS,
        2,
    ): "((1 (4 (5 87) (6 87)) (7 (8 87) (9 87))) (12 (15 (16 87) (17 87)) (18 (19 87) (20 87))))",
    (ApiKey.TXN_OFFSET_COMMIT, 0): "((5 (6 87) (9 87)) (12 (13 87) (16 87)))",
    (ApiKey.TXN_OFFSET_COMMIT, 6): "((id8 (9 87) (13 87)) (id17 (18 87) (22 87)))",
    (ApiKey.CREATE_ACLS, 1): "((87) (87))",
    (ApiKey.CREATE_ACLS, 3): "((87) (87))",
    (ApiKey.DELETE_ACLS, 1): "((87) (87))",
    (ApiKey.DELETE_ACLS, 3): "((87) (87))",
    (ApiKey.DESCRIBE_CONFIGS, 1): "((87 1 2) (87 5 6))",
    (ApiKey.DESCRIBE_CONFIGS, 4): "((87 1 2) (87 5 6))",
    (ApiKey.ALTER_CONFIGS, 0): "((87 1 2) (87 7 8))",
    (ApiKey.ALTER_CONFIGS, 2): "((87 1 2) (87 7 8))",
    (ApiKey.DESCRIBE_LOG_DIRS, 1): "()",
    (ApiKey.CREATE_PARTITIONS, 0): "((1 87) (7 87))",
    (ApiKey.CREATE_PARTITIONS, 3): "((1 87) (7 87))",
    (ApiKey.DELETE_GROUPS, 0): "((1 87) (2 87))",
    (ApiKey.DELETE_GROUPS, 3): "((1 87) (2 87))",
    (ApiKey.ELECT_LEADERS, 0): "((1 (2 87) (3 87)) (4 (5 87) (6 87)))",
    (ApiKey.ELECT_LEADERS, 2): "(87 (2 (3 87) (4 87)) (5 (6 87) (7 87)))",
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0): "((87 1 2) (87 9 10))",
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1): "((87 1 2) (87 9 10))",
    (ApiKey.ALTER_CLIENT_QUOTAS, 0): "((87 (1 2) (3 4)) (87 (11 12) (13 14)))",
    (ApiKey.ALTER_CLIENT_QUOTAS, 1): "((87 (1 2) (3 4)) (87 (11 12) (13 14)))",
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0): "(87 (1 87) (2 87))",
    (ApiKey.DESCRIBE_PRODUCERS, 0): "((1 (2 87) (3 87)) (4 (5 87) (6 87)))",
    (ApiKey.DESCRIBE_TRANSACTIONS, 0): "((87 1) (87 2))",
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0): "((87 1) (87 2))",
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1): "((87 1) (87 2))",
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0): "((87 1) (87 2))",
    (ApiKey.REPLICATE_METADATA, 0): "(87 -1 -1)",
}
"""The answers at the lowest and the highest version to a request with two items in each array, as `told` shows them.

All others are the error at the top.
"""

CASES = [
    (api, version)
    for api, handler in HANDLERS.items()
    if REFUSALS[api] is refuse
    for version in sorted({REQUESTS[api].versions[0], handler.MAX_VERSION})
]


@pytest.mark.parametrize(("api", "version"), CASES)
def test_every_part_of_the_request_is_answered_with_the_error(api: ApiKey, version: int) -> None:
    response = refuse(ClientRequest(sample(api, version), version, "c", "h"), ErrorCode.INVALID_RECORD)
    assert told(response.encode(version), api, version) == ANSWERS.get((api, version), "(87)")


def sample(api: ApiKey, version: int) -> Request:
    """Return a request with two items in each array, and a value of its own in each field."""
    request: Request = build(REQUESTS[api], version, distinct_values(), 2)
    return request


def told(encoded: bytes, api: ApiKey, version: int) -> str:
    """Return what is not its default, as text; structs in parentheses, the number of a sample's text for the text."""
    return _told(RESPONSES[api].decode(encoded, version))


def _told(value: Any) -> str:
    if isinstance(value, Struct):
        defaults = type(value)()
        values = ((getattr(value, field.name), getattr(defaults, field.name)) for field in type(value).fields)
        return f"({' '.join(_told(given) for given, default in values if given != default)})"
    if isinstance(value, list):
        return " ".join(_told(item) for item in value)
    if isinstance(value, UUID):
        return f"id{value.int}"
    return str(value).removeprefix("välue ")


@pytest.mark.parametrize(("api", "version"), CASES)
def test_request_without_items_names_none(api: ApiKey, version: int) -> None:
    for has_nulls in (False, True):
        request: Request = build(REQUESTS[api], version, distinct_values(), 0, has_nulls)
        response = refuse(ClientRequest(request, version, "c", "h"), ErrorCode.INVALID_RECORD)
        assert told(response.encode(version), api, version) in ("()", "(87)", "(87 -1)", "(87 -1 -1)")
