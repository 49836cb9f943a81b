"""Plain English: phrases that made readers stop and read twice are refused in docstrings, comments, messages and docs.

To mend a finding write subject, verb, object: "was told of" -> "was informed of", "is none" -> "there is none"
or "is missing", "asked for" -> "requested", "goes on" -> "continues", "somebody" -> who it is, "stands behind" ->
"follows", "anew" -> "again", "for so long" -> "for this time", "speaks no version" -> "supports no version", "all the
same" -> "still", "comes to" -> "reaches", "lets go of" -> "drops", "is to join" -> "must join". An error code is its
name in `ErrorCode`: "answers 27" -> "answers REBALANCE_IN_PROGRESS".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}

_SPACE = r"\s+(?:[#*>]+\s*)?"  # a phrase may go over a line's end, and over the sign of a comment
PHRASES = [
    r"told|tells|said",
    r"(?:some|no)body",
    r"anew|likewise",
    rf"(?<!there )(?:is|are|was|were){_SPACE}(?-i:none)",
    rf"ask(?:s|ed|ing)?{_SPACE}for",
    rf"go(?:es)?{_SPACE}on(?!{_SPACE}(?:the|a|an|its)\b)",
    rf"(?:stands?|stood){_SPACE}(?:in|behind)",
    rf"look(?:s|ed|ing)?{_SPACE}after",
    rf"for{_SPACE}so{_SPACE}long",
    rf"of{_SPACE}(?:no{_SPACE}use|ours)",
    rf"speaks?{_SPACE}no",
    rf"all{_SPACE}the{_SPACE}same",
    rf"cannot{_SPACE}be{_SPACE}had|not{_SPACE}to{_SPACE}be{_SPACE}had",
    rf"(?:do|does){_SPACE}not{_SPACE}go{_SPACE}with",
    rf"(?:comes|came){_SPACE}to",
    rf"let(?:s|ting)?{_SPACE}go{_SPACE}of",
    rf"of{_SPACE}old(?=[.,;:)])",
    r"amid",
    # "members are to join again": who must do what? Not "what there is to read", "answers are to the requests".
    rf"(?<!there )(?:is|are|was|were)(?:{_SPACE}not)?{_SPACE}to{_SPACE}(?!(?:a|an|the|one|confluent)\b)[a-z]+",
]
REFUSED = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
# Numbers of error codes where their names belong. A process has an exit code; messages of single codes show theirs.
CODES = re.compile(
    r"\banswers? (?:with )?\d+\b|(?:\w(?:Error|Refused)|\bRefused):? \d+\b|\berrors? \d+\b|(?<!exit )\bcodes? \d+\b",
    re.IGNORECASE,
)

# "client: Of the cluster": of what? An entry, an attribute's text or a comment needs a subject.
WITHOUT_SUBJECT = re.compile(r'^\s*(?:[a-z_]\w*(?:, [a-z_]\w*)*: |""")(?:Of|of)\b.*|^\s*# Of\b.*', re.MULTILINE)

# A method that overrides one with a docstring needs none.
SAYS_NOTHING = re.compile(r'^        """(?:See (?:the (?:base )?class|`?[\w.]+`?)|Return None)\."""$', re.MULTILINE)


def texts() -> Iterator[Path]:
    """Everything that readers of the package see: sources, documentation, the pages in the root."""
    yield from ROOT.glob("*.md")
    for folder in ("kafkaprod", "pyspark_kafkaprod", "docs"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def findings(refused: re.Pattern[str]) -> list[str]:
    found = []
    for path in sorted(texts()):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(ROOT))
        for match in refused.finditer(text):
            found.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}")
    return found


def test_no_refused_phrase_is_used() -> None:
    assert findings(REFUSED) == []


def test_error_codes_have_names_in_texts() -> None:
    assert findings(CODES) == []


def test_texts_of_fields_have_a_subject() -> None:
    assert findings(WITHOUT_SUBJECT) == []


def test_docstrings_of_methods_say_something() -> None:
    assert findings(SAYS_NOTHING) == []
    assert SAYS_NOTHING.search('    def size(self) -> int:\n        """See `PartitionLog`."""\n        return 0\n')
    assert not SAYS_NOTHING.search('class A:\n    """See the module docstring."""\n')


def test_a_phrase_is_found_over_a_line_end_and_a_comment_sign() -> None:
    assert REFUSED.search("# the memory that was asked\n    # for by the caller")
    assert not REFUSED.search("what goes on the wire; file.tell(); self._has_told")


def test_a_number_of_an_error_code_and_a_text_without_a_subject_are_found() -> None:
    assert CODES.search("LogError: 2, the log is damaged")
    assert CODES.search("Heartbeat answers 27")
    assert not CODES.search("exit code 75; LogError: CORRUPT_MESSAGE")
    assert WITHOUT_SUBJECT.search("Args:\n    client: Of the cluster.")
    assert not WITHOUT_SUBJECT.search("Args:\n    client: A client of the cluster.")
