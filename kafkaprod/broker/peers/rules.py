"""What tests do to the connections between the processes of a cluster: cuts and delays, by direction.

Processes are named by the broker's id as text, or "controller". Pure state: one owner, no lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CONTROLLER = "controller"


def socket_path(directory: str, name: str) -> str:
    """Return the path of a process's socket."""
    return os.path.join(directory, f"{name}.sock")


Direction = tuple[str, str]
"""From whom to whom."""


@dataclass(slots=True)
class LinkRules:
    """Which directions are cut, and how many milliseconds later messages arrive in others."""

    cuts: set[Direction] = field(default_factory=set)
    delays_ms: dict[Direction, int] = field(default_factory=dict)

    def replace(self, cuts: Iterable[Iterable[str]], delays_ms: Mapping[str, int]) -> None:
        """Put other rules in place of these. Delays have keys like "1>2"."""
        self.cuts = {(source, target) for source, target in cuts}
        self.delays_ms = {}
        for key, delay_ms in delays_ms.items():
            source, _, target = key.partition(">")
            self.delays_ms[source, target] = delay_ms

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of `replace` as plain values."""
        return {
            "cuts": sorted(list(cut) for cut in self.cuts),
            "delays_ms": {f"{source}>{target}": delay for (source, target), delay in self.delays_ms.items()},
        }
