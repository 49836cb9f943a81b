"""The pages docs/api-*.md have every public name, and every public method of the producers."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import kafkaprod

ROOT = Path(__file__).resolve().parents[2]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("api-*.md")))


@pytest.mark.parametrize("name", sorted(set(kafkaprod.__all__) - {"__version__", "KafkaError"}))
def test_a_public_name_has_an_entry(name: str) -> None:
    assert re.search(rf"^\.\. auto(class|data):: kafkaprod\.{name}$", PAGE, re.MULTILINE)


def test_errors_hooks_metrics_and_test_helpers_have_an_entry() -> None:
    for module in ("errors", "hooks.serializers", "hooks.partitioners", "hooks.interceptors", "metrics.reporters"):
        assert f".. automodule:: kafkaprod.{module}\n" in PAGE
    for name in ("broker.EmbeddedBroker", "broker.EmbeddedCluster", "broker.embedding.pytest_plugin"):
        assert f":: kafkaprod.{name}\n" in PAGE


def entry(name: str) -> set[str]:
    """Members that an autoclass directive names."""
    text = PAGE.partition(f":: kafkaprod.{name}\n")[2].split("\n.. auto")[0].partition("```")[0]
    listed = re.findall(r":members: (.*)", text) + re.findall(r"automethod:: (.*)", text)
    return {member for line in listed for member in line.replace(",", " ").split()}


@pytest.mark.parametrize("name", ["Producer", "BlockResult", "TableResult"])
def test_public_members_are_listed(name: str) -> None:
    cls = getattr(kafkaprod, name)
    own = {member for member, thing in inspect.getmembers(cls) if not member.startswith("_") and callable(thing)}
    internal = {
        "add",
        "begin_send",
        "blamed",
        "ends",
        "first_error",
        "peek_error",
        "refuse_rest",
        "runs",
        "settled",
        "when_done",
    } | {"watch_batches"}
    assert own - internal - entry(name) == set()


def test_spark_functions_are_listed() -> None:
    source = (ROOT / "kafkaprod" / "spark" / "__init__.py").read_text(encoding="utf-8")
    names = ast.literal_eval(source.partition("__all__ = ")[2])
    assert set(names) - entry("spark") == set()
