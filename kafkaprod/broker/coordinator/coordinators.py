"""The two coordinators, as a handler's module names the one that its API belongs to."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC


class Coordinator(NamedTuple):
    """Which coordinator answers an API, and when.

    Attributes:
        topic: Holds the coordinator's log; its leader is the coordinator.
        only_with: A field of the request; without a value there, any broker answers.
        is_asked_everywhere: Clients ask every broker; one that is not the coordinator answers that it knows of nothing.
    """

    topic: str
    only_with: str = ""
    is_asked_everywhere: bool = False


GROUPS: Final = Coordinator(OFFSETS_TOPIC)
TRANSACTIONS: Final = Coordinator(TRANSACTIONS_TOPIC)
