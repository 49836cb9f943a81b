"""One public name of a class or of a type alias, one meaning: readers who search for it find what they look for.

Kafka's messages and the interfaces of other clients keep the names that they have elsewhere. To mend a finding give one
of the classes the name that Kafka or its own protocol has for it, or put its subject first: `Verdict` ->
`BatchVerdict`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("kafkaprod/compat/", "kafkaprod/protocol/messages/")
ALIAS = re.compile(r"[A-Z][a-z]")
COMPILED = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)


def classes(name: str, text: str) -> Iterator[str]:
    """Yield the classes and type aliases that a .py or .pyx file defines outside functions and other classes."""
    if name.endswith(".pyx"):
        yield from COMPILED.findall(text)
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name) and ALIAS.match(target.id))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and ALIAS.match(node.target.id):
            yield node.target.id


def twice_used_names() -> dict[str, list[str]]:
    """Return each public name of more than one class or alias, and where these are."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "kafkaprod").rglob("*.py*")):
        place = path.relative_to(ROOT).as_posix()
        if path.suffix in (".py", ".pyx") and not place.startswith(KEPT):
            for name in classes(place, path.read_text(encoding="utf-8")):
                if not name.startswith("_"):
                    places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_public_name_stands_for_two_classes_or_aliases() -> None:
    assert twice_used_names() == {}


def test_compiled_classes_and_those_of_python_are_found() -> None:
    assert list(classes("a.pyx", "@cython.final\ncdef class Batch(Base):\n    pass\nclass Sum:\n")) == ["Batch", "Sum"]
    assert list(classes("a.py", "class Batch: ...\n\ndef make():\n    class Inner: ...\n")) == ["Batch"]


def test_type_aliases_are_found_and_constants_are_not() -> None:
    source = "Reply = Callable[[int], None]\nSteps: TypeAlias = Generator[T]\nLEAST = TABLE[1]\nText = str | None\n"
    assert list(classes("a.py", source)) == ["Reply", "Steps", "Text"]
