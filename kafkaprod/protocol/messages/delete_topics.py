"""DeleteTopics (20).

    4  flexible     5  error message; may answer THROTTLING_QUOTA_EXCEEDED     6  topics by id (KIP-516)

Source: KIP-4, KIP-516, KIP-599.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DeleteTopicState(Struct):
    """A topic, by name or by id."""

    name: str | None = field(NULLABLE_STRING)
    topic_id: uuid.UUID | None = field(UUID)


class DeleteTopicsRequest(Request, api=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible_from=4):
    """Topics to delete."""

    topics: list[DeleteTopicState] = field(array(DeleteTopicState), since=6)
    topic_names: list[str] = field(array(STRING), until=5, ignorable=True)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Struct):
    """The outcome for one topic."""

    name: str | None = field(STRING.nullable(since=6))
    topic_id: uuid.UUID | None = field(UUID, since=6, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING, since=5, ignorable=True)


class DeleteTopicsResponse(Response, api=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible_from=4):
    """The outcome for each topic."""

    throttle_time_ms: int = field(INT32)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
