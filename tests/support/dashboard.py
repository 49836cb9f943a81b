"""The Grafana dashboard of the documentation, read for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "docs" / "grafana-dashboard.json"


@dataclass(frozen=True)
class Target:
    """One expression of a panel."""

    ref: str
    expression: str
    legend: str

    def filled(self, interval: str) -> str:
        """Return the expression as Grafana sends it with all clients chosen."""
        return self.expression.replace("$client", ".*").replace("$__rate_interval", interval)


@dataclass(frozen=True)
class Panel:
    """One panel."""

    id: int
    title: str
    unit: str
    targets: tuple[Target, ...]
    refs_with_own_axis: frozenset[str]


def panels() -> list[Panel]:
    """Return the panels in their order."""
    return [_panel(each) for each in _read()["panels"]]


def variables() -> dict[str, str]:
    """Return the query of each variable."""
    return {each["name"]: each["query"] for each in _read()["templating"]["list"]}


def _panel(read: dict[str, Any]) -> Panel:
    config = read["fieldConfig"]
    return Panel(
        id=read["id"],
        title=read["title"],
        unit=config["defaults"]["unit"],
        targets=tuple(Target(each["refId"], each["expr"], each["legendFormat"]) for each in read["targets"]),
        refs_with_own_axis=frozenset(each["matcher"]["options"] for each in config["overrides"]),
    )


def _read() -> Any:
    return json.loads(PATH.read_text(encoding="utf-8"))
