"""How long the names are that clients choose and a broker keeps."""

from __future__ import annotations

from typing import Final

MAX_TOPIC_NAME_CHARS: Final = 249
"""Kafka's limit: the name of a partition's directory is longer by its number."""

MAX_ID_CHARS: Final = 1_024
"""Most characters of an id that a client chooses and a broker keeps: groups, transactional ids, members, principals,
hosts. Clients take UUIDs, or names; Kafka has no limit but that of the protocol."""
