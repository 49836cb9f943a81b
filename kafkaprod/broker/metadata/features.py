"""Features of a cluster, and the levels of them that this build has. A level is part of the metadata.

    metadata.version     how the records of the metadata log are written; 25 is 4.0-IV3
    transaction.version  1 records of transactions with tagged fields, 2 an epoch for each transaction (KIP-890)
    group.version        1 groups of the consumer protocol (KIP-848)

Source: Kafka, `MetadataVersion` and `Feature`; KIP-584, KIP-1022. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (25, 25),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
}
"""The lowest and the highest level of each feature."""

DEFAULT_LEVELS: Final[Mapping[str, int]] = {name: highest for name, (_, highest) in SUPPORTED.items()}
"""The levels of a new cluster."""


def reason_not_supported(level: int, what: str, bounds: tuple[int, int]) -> str | None:
    """Return why a level is not among those of a process, in Kafka's words; None if it is.

    Args:
        level: The level.
        what: Who has the bounds: "Broker 1".
        bounds: The lowest and the highest level; (0, 0) for a feature that is not known.
    """
    lowest, highest = bounds
    if lowest <= level <= highest:
        return None
    if highest == 0:
        return f"{what} does not support this feature."
    versions = str(lowest) if lowest == highest else f"{lowest}-{highest}"
    return f"{what} only supports versions {versions}"
