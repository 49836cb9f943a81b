"""An error that the program expects is logged as its message: a stack is for what should not happen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import errors

PACKAGE = Path(errors.__file__).parent
FURTHER = {"OSError", "RequestRefusedError", "LogError"}


def expected_errors() -> set[str]:
    """The names of errors whose messages say all."""
    return FURTHER | {name for name, kind in vars(errors).items() if isinstance(kind, type)}


def stacks_of_expected_errors(text: str) -> Iterator[str]:
    """Yield the calls that log a stack where nothing but expected errors are caught."""
    names = expected_errors()
    for handler in ast.walk(ast.parse(text)):
        if not isinstance(handler, ast.ExceptHandler) or handler.type is None:
            continue
        caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if {ast.unparse(each) for each in caught} <= names:
            yield from (ast.unparse(node) for body in handler.body for node in ast.walk(body) if logs_stack(node))


def logs_stack(node: ast.AST) -> bool:
    """Whether a node is `logger.exception(...)`, or a call with `exc_info`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    is_exception = node.func.attr == "exception" and ast.unparse(node.func.value) == "logger"
    return is_exception or any(given.arg == "exc_info" for given in node.keywords)


@pytest.mark.parametrize(
    ("caught", "line", "count"),
    [
        ("KafkaError", "logger.exception('x')", 1),
        ("(OSError, BrokerError) as error", "logger.error('x', exc_info=True)", 1),
        ("KafkaError as error", "logger.error('x: %s', error)", 0),
        ("Exception", "logger.exception('x')", 0),
        ("(KafkaError, ValueError)", "logger.exception('x')", 0),
        ("KafkaError", "future.exception()", 0),
    ],
)
def test_stacks_are_seen(caught: str, line: str, count: int) -> None:
    text = f"try:\n    call()\nexcept {caught}:\n    {line}\n"
    assert len(list(stacks_of_expected_errors(text))) == count


def test_expected_errors_are_logged_as_their_messages() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): calls
        for path in sorted(PACKAGE.rglob("*.py"))
        if (calls := list(stacks_of_expected_errors(path.read_text(encoding="utf-8"))))
    }
    assert found == {}
