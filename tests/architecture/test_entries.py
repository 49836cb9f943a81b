"""Each entry of Args, Attributes, Raises, Returns and Yields begins with a capital, as all other sentences do.

A code word keeps its spelling: an identifier, a literal, a unit, a program's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^(\s*)(?:Args|Attributes|Raises|Returns|Yields):\s*$")
ENTRY = re.compile(r"^\s*\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[A-Za-z_]\w*)*: ([a-z]\S*)")
CODE_WORD = re.compile(
    r"[_=.(\[\d/]|^(?:ms|us|ns|kqueue|epoll|librdkafka|int|bool|str|bytes|float|kafka-python)\b(?! )"
)


def small_entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the first word of each entry that begins with a small letter."""
    section: int | None = None
    for number, line in enumerate(text.split("\n"), 1):
        head = SECTION.match(line)
        if head:
            section = len(head[1])
            continue
        indent = len(line) - len(line.lstrip())
        if section is None or (line.strip() and indent <= section) or '"""' in line:
            section = None
            continue
        entry = ENTRY.match(line)
        if entry and indent == section + 4 and not CODE_WORD.search(entry[1].rstrip(".,;:")):
            yield number, entry[1]


def test_entries_begin_with_a_capital() -> None:
    found = []
    for folder in ("kafkaprod", "pyspark_kafkaprod"):
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix in (".py", ".pyx", ".pyi"):
                text = path.read_text(encoding="utf-8")
                found += [f"{path.relative_to(ROOT)}:{line}: {word}" for line, word in small_entries(text)]
    assert found == []


def test_a_small_entry_is_found_and_a_code_word_is_not() -> None:
    text = "Args:\n    client: of the cluster.\n    size: Bytes.\n    mode: acks=all.\n        more: text\n\nelse: none"
    assert list(small_entries(text)) == [(2, "of")]
