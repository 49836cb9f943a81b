"""Codecs have one list, `kafkaprod/compression/__init__.py`: no other module spells their names or numbers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaprod.compression import CODEC_IDS, OFFERED_CODECS

PACKAGE = Path(__file__).resolve().parents[2] / "kafkaprod"
NAMES = set(CODEC_IDS) - {"none"}

# Adds a codec before another module is loaded, then asks every place that lists codecs.
PROGRAM = """
from kafkaprod import compression
last = ", ".join(list(compression.CODEC_IDS)[-3:])
number = max(compression.CODEC_IDS.values()) + 1
compression.CODEC_IDS["brotli"] = number
compression.CODEC_LIST = ", ".join(compression.CODEC_IDS)
compression.OFFERED_CODECS += ("brotli",)
from kafkaprod.broker.settings.client_metrics import ACCEPTED_CODECS
from kafkaprod.broker.storage.format.log_config import COMPRESSION_TYPES
from kafkaprod.cli.documentation import cli_page
from kafkaprod.compat.aiokafka.options import _CODECS
from kafkaprod.config import ProducerConfig
assert number in ACCEPTED_CODECS
assert "brotli" in COMPRESSION_TYPES
assert cli_page().count(f"{last}, brotli") == cli_page().count(last) >= 3
assert ProducerConfig(bootstrap_servers="h", compression_type="brotli").compression_type == "brotli"
assert "brotli" in _CODECS
"""


def lists_of_codecs(source: str) -> list[int]:
    """Return the lines of literals that list codecs: "snappy" beside two others, or a codec's name as a number's."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        words: set[str] = set()
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(keys=parts):
                words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            case ast.Call(args=parts):
                words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            case ast.Constant(value=str(text)) if id(node) not in docstrings and "\n" not in text:
                words = set(text.replace(",", " ").split())
            case ast.Name(id=name, ctx=ast.Store()) if name.strip("_").lower() in NAMES:
                found.append(getattr(node, "lineno", 0))
        if "snappy" in words and len(words & NAMES) > 2:
            found.append(getattr(node, "lineno", 0))
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('CODECS = ("zstd", "lz4", "snappy")', 1),
        ('choose("gzip", "lz4", "snappy")', 1),
        ('help = "none, gzip, snappy, lz4, zstd"', 1),
        ("_ZSTD = 4", 1),
        ("ZSTD, LZ4 = 4, 3", 2),
        ('"""gzip, snappy, lz4."""\nFILES = ("gzip", "zstd")', 0),
    ],
)
def test_a_list_of_codecs_is_found(source: str, count: int) -> None:
    assert len(lists_of_codecs(source)) == count


def test_no_module_but_one_lists_codecs() -> None:
    """What is generated from the options does, too."""
    places = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if path not in (PACKAGE / "compression" / "__init__.py", PACKAGE / "config" / "option_types.py")
        for line in lists_of_codecs(path.read_text(encoding="utf-8"))
    ]
    assert places == []


def test_every_codec_is_offered_once() -> None:
    assert sorted(OFFERED_CODECS) == sorted(NAMES)


def test_a_codec_that_is_added_there_is_known_everywhere() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
