"""A broker alone is a cluster of one: what differs is a method of `cluster.standing.Standing`, not a question."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

BROKER = Path(__file__).parents[2] / "kafkaprod" / "broker"
WORDS = frozenset({"member", "controller", "cluster", "standing"})
"""Names of what a broker alone might lack."""
MOST_QUESTIONS = 10


def _asked(node: ast.AST) -> str | None:
    """The name that is compared with None, if it is one of a broker's place in its cluster."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.IsNot):
        return None
    right = node.comparators[0]
    if not isinstance(right, ast.Constant) or right.value is not None:
        return None
    name = getattr(node.left, "attr", getattr(node.left, "id", ""))
    return name if name in WORDS else None


def questions() -> Counter[str]:
    """How often each file of the broker asks; members of groups are another thing."""
    found: Counter[str] = Counter()
    for path in sorted(BROKER.rglob("*.py")):
        if path.parent.name != "coordinator":
            found[str(path.relative_to(BROKER))] += sum(
                _asked(node) is not None for node in ast.walk(ast.parse(path.read_text()))
            )
    return +found


def test_few_places_ask_whether_a_broker_is_alone() -> None:
    found = questions()
    assert 0 < found.total() <= MOST_QUESTIONS, found
    assert not [name for name in found if name.startswith(("handlers/", "settings/", "cluster/"))], found


LATE = ("cluster.clustered", "cluster.member", "cluster.marker_sender", "cluster.replicated_topics", "replication")


def test_a_broker_alone_loads_nothing_of_the_others() -> None:
    """It starts without what only a broker of several needs."""
    program = "import sys, kafkaprod.broker.server.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "kafkaprod.broker.cluster.alone" in loaded
    assert not [name for name in loaded if name.startswith(tuple(f"kafkaprod.broker.{late}" for late in LATE))]
