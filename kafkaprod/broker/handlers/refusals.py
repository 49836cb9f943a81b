"""The response in which every part of a request has failed with one error, from the declaration of the response.

Its error codes are set, and the items of the request (topics, partitions, groups ...) are answered one by one where
Kafka does so; `ITEMS` says where. A handler whose API needs more has a function `refuse` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafkaprod.broker.calls.refusal_shapes import NO_ITEMS, Sources, refusal
from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.schema import Response

_TOPIC_PARTITIONS: Final[dict[str, str | int]] = {"topics": "topics", "partitions": "partitions"}
_RESOURCES: Final[Sources] = {"responses": "resources"}

ITEMS: Final[Mapping[ApiKey, Sources]] = {
    ApiKey.PRODUCE: {"responses": "topic_data", "partition_responses": "partition_data", "base_offset": -1},
    ApiKey.LIST_OFFSETS: _TOPIC_PARTITIONS | {"timestamp": -1},
    ApiKey.OFFSET_COMMIT: _TOPIC_PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _TOPIC_PARTITIONS,
    ApiKey.OFFSET_FETCH: {"groups": "groups"},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _TOPIC_PARTITIONS | {"leader_epoch": -1},
    ApiKey.DELETE_RECORDS: _TOPIC_PARTITIONS | {"low_watermark": -1},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": "topics", "partitions": "partition_indexes", "partition_index": ""},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transaction_states": "transactional_ids", "transactional_id": ""},
    ApiKey.INIT_PRODUCER_ID: {"producer_epoch": -1},
    ApiKey.FIND_COORDINATOR: {"coordinators": "coordinator_keys", "key": "", "node_id": -1, "port": -1},
    ApiKey.DESCRIBE_GROUPS: {"groups": "groups", "group_id": ""},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"groups": "group_ids", "group_id": ""},
    ApiKey.DELETE_GROUPS: {"results": "groups_names", "group_id": ""},
    ApiKey.CREATE_TOPICS: {"topics": "topics", "num_partitions": -1, "replication_factor": -1},
    ApiKey.CREATE_PARTITIONS: {"results": "topics"},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": "topics"},
    ApiKey.ELECT_LEADERS: {
        "replica_election_results": "topic_partitions",
        "partition_result": "partitions",
        "partition_id": "",
    },
    ApiKey.ALTER_CONFIGS: _RESOURCES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCES,
    ApiKey.DESCRIBE_CONFIGS: {"results": "resources"},
    ApiKey.CREATE_ACLS: {"results": "creations"},
    ApiKey.DELETE_ACLS: {"filter_results": "filters"},
    ApiKey.ALTER_CLIENT_QUOTAS: {"entries": "entries", "entity": "entity"},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"results": "users", "user": "name"},
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": "markers",
        "topics": "topics",
        "partitions": "partition_indexes",
        "partition_index": "",
    },
    ApiKey.REPLICATE_METADATA: {"end_offset": -1, "end_epoch": -1},
}
"""The APIs whose refusals are more than an error code at the top."""


def refuse(request: ClientRequest[Any], error_code: int) -> Response:
    """Return the response in which every part of the request has failed."""
    body = request.body
    return refusal(body, request.version, error_code, ITEMS.get(body.api, NO_ITEMS))
