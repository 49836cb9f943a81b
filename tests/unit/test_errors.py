"""Errors: text of others in their messages can neither forge a log line nor steer a terminal."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkaprod
from kafkaprod import errors
from kafkaprod.errors import KafkaError, printable
from kafkaprod.protocol.error_codes import error_for

FORGED = "x\n2026-11-22 ERROR everything is lost\x1b[31m\x9b2J\u202e\r\u2028"
ESCAPED = "x\\n2026-11-22 ERROR everything is lost\\x1b[31m\\x9b2J\\u202e\\r\\u2028"

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, KafkaError)]


def test_printable_escapes_what_is_not_and_leaves_the_rest() -> None:
    assert printable(FORGED) == ESCAPED
    assert printable("größe 1 → 2 \U0001f600") == "größe 1 → 2 \U0001f600"
    assert printable("\udc80") == "\\udc80"
    assert printable("x" * 30, 10) == "x" * 10 + "..."


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_error_escapes_its_message(error_class: type[KafkaError]) -> None:
    assert str(error_class(FORGED)) == ESCAPED


def test_text_of_a_broker_is_escaped_and_cut() -> None:
    assert str(error_for(87, FORGED * 1_000)).isprintable()
    assert len(str(error_for(87, FORGED * 1_000))) < 3_000


# What a `%s` of a log call may be: an error (see above), a constant, or a name that does not come from the network.
_SAFE = {
    "error",
    "str(error)",  # without the frames that an error keeps
    "failure.error",
    "self._pool.members.bootstrap_error()",
    "api.name",
    "handler.API.name",
    "exchange.handler.API.name",
    "host",  # of a socket, or escaped when the metadata was read
    "limit",
    "failure.stage",
    "*failure.node[1:3]",
    "session.host",
    "name",
    "method",
    "work",
    "counted(count, 'record')",
    "counted(record_count, 'record')",
    "counted(unknown, 'record')",
    "counted(self.restored_count, 'record')",
    "self._journal.directory",  # as this program gave it
    "spool.describe()",
    "file.path",
    "what",  # texts of this package
    "reason",  # a constant of the table of options
    "report",
    "_sum(messages)",
    "self._dumps(chosen)",
    "topic_partition",  # of the broker's own log
    "why",  # texts of this package, or an error, which escapes its message
    "self._source.client_id",
    "type(reporter).__qualname__",
    "ref.topic",  # as this program gave it
    "self.topic",
    "topic",  # of the broker's own log
    "partition",
    "OFFSETS_TOPIC",
    "key",  # a topic and partition of the cluster's own metadata
    "place",  # of a Spark task: names that this program gave
    "self._place",
    "_mib(chosen)",
    "_mib(limit)",
    "type(error).__name__",
}


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    root = Path(kafkaprod.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
                is_logger = ast.unparse(node.func.value) in ("logger", "self._log")
                if is_logger and node.func.attr in (
                    "debug",
                    "info",
                    "warning",
                    "error",
                    "exception",
                    "critical",
                    "log",
                ):
                    yield str(path.relative_to(root)), node


def test_log_calls_take_text_by_repr_or_from_a_safe_place() -> None:
    """A name that is new here: log it with %r, or through `printable`; or add it, if it cannot come from outside."""
    wrong = []
    for path, call in log_calls():
        start = 1 if isinstance(call.func, ast.Attribute) and call.func.attr == "log" else 0
        form, *values = call.args[start:]
        kinds = [part[0] for part in ast.unparse(form).replace("%%", "").split("%")[1:]]
        texts = [ast.unparse(value) for value in values]
        if len(kinds) == len(texts):
            texts = [text for kind, text in zip(kinds, texts, strict=True) if kind == "s"]
        wrong += [(path, call.lineno, text) for text in texts if text not in _SAFE and "printable(" not in text]
    assert wrong == []
