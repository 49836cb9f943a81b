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
    """Which directions are cut; how many milliseconds later messages arrive in others, and how many bytes a second."""

    cuts: set[Direction] = field(default_factory=set)
    delays_ms: dict[Direction, int] = field(default_factory=dict)
    bytes_per_s: dict[Direction, int] = field(default_factory=dict)

    def replace(
        self, cuts: Iterable[Iterable[str]], delays_ms: Mapping[str, int], bytes_per_s: Mapping[str, int]
    ) -> None:
        """Put other rules in place of these. Delays and rates have keys like "1>2"."""
        self.cuts = {(source, target) for source, target in cuts}
        self.delays_ms = _by_direction(delays_ms)
        self.bytes_per_s = _by_direction(bytes_per_s)

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of `replace` as plain values."""
        return {
            "cuts": sorted(list(cut) for cut in self.cuts),
            "delays_ms": _by_name(self.delays_ms),
            "bytes_per_s": _by_name(self.bytes_per_s),
        }


def _by_direction(values: Mapping[str, int]) -> dict[Direction, int]:
    parts = {key: key.partition(">") for key in values}
    return {(parts[key][0], parts[key][2]): value for key, value in values.items()}


def _by_name(values: Mapping[Direction, int]) -> dict[str, int]:
    return {f"{source}>{target}": value for (source, target), value in values.items()}
