"""The bit sets of authorized operations (KIP-430), for clients that may do everything.

Bit n is set for operation n: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12. Source: Kafka, AclOperation and
AclEntry.supportedOperations.
"""

from __future__ import annotations

from collections.abc import Iterable


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits((3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = _bits((3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = _bits((5, 7, 8, 9, 10, 11, 12))
