"""Regular expressions of clients over names, matched in time that grows with pattern and name only.

Kafka uses RE2 for the same reason: a pattern such as `(a+)+` must not stop the broker. The pattern is parsed by
Python's `re`, turned into an automaton without backtracking, and must match the whole name. Word boundaries are not
supported, nor what RE2 does not have either: back references and lookaround. Pure.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from re import _constants as ops  # type: ignore[attr-defined]  # not public, but in every CPython
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")  # of topic names
_MAX_STATES: Final = 1_000
_MAX_EDGES: Final = 20_000
_CATEGORIES: Final = {  # of ASCII only, as in RE2
    ops.CATEGORY_DIGIT: frozenset(string.digits),
    ops.CATEGORY_WORD: frozenset(string.ascii_letters + string.digits + "_"),
    ops.CATEGORY_SPACE: frozenset("\t\n\f\r "),
}
_COMPLEMENTS: Final = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
}
_AT_START: Final = (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING)
_AT_END: Final = (ops.AT_END, ops.AT_END_STRING)
_ACCEPT: Final = 0


class _State(NamedTuple):
    """A state of the automaton: it needs one of `chars`, or is passed freely, or at one end of the name only."""

    chars: frozenset[str] | None
    successors: tuple[int, ...]
    is_only_at_start: bool = False
    is_only_at_end: bool = False


class TopicRegex:
    """See the module docstring."""

    def __init__(self, pattern: str, alphabet: frozenset[str] = _ALPHABET) -> None:
        """Compile.

        Args:
            pattern: The expression.
            alphabet: Every character of the names it will be tried on.

        Raises:
            ValueError: The pattern is invalid, too large, or uses what is not supported; the message says what.
        """
        self._pattern = pattern
        self._alphabet = alphabet
        self._states = [_State(frozenset(), ())]
        try:
            tree = parser.parse(pattern)
            self._ignores_case = bool(tree.state.flags & re.IGNORECASE)
            begin = self._sequence(tree, _ACCEPT)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"`{pattern}` is not a valid regular expression: {error}") from error
        self._begin = self._closure([begin], at_start=True)
        self._edges: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        current = self._begin
        for char in name:
            edge = (current, char)
            found = self._edges.get(edge)
            if found is None:
                found = self._step(current, char)
                if len(self._edges) < _MAX_EDGES:
                    self._edges[edge] = found
            current = found
        return _ACCEPT in self._closure(current, at_end=True)

    # -- building: from the end to the beginning, so that each part knows what follows it ------------------------------

    def _sequence(self, items: Iterable[tuple[Any, Any]], then: int) -> int:
        for op, argument in reversed(list(items)):
            then = self._item(op, argument, then)
        return then

    def _item(self, op: Any, argument: Any, then: int) -> int:
        if op in (ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY):
            return self._add(_State(self._charset(op, argument), (then,)))
        if op is ops.BRANCH:
            return self._add(_State(None, tuple(self._sequence(branch, then) for branch in argument[1])))
        if op is ops.SUBPATTERN and not (argument[1] or argument[2]):  # flags within the group
            return self._sequence(argument[3], then)
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            return self._repeat(argument[0], argument[1], argument[2], then)
        if op is ops.AT and argument in _AT_START:
            return self._add(_State(None, (then,), is_only_at_start=True))
        if op is ops.AT and argument in _AT_END:
            return self._add(_State(None, (then,), is_only_at_end=True))
        what = argument if op is ops.AT else op
        raise ValueError(f"`{self._pattern}` uses {str(what).lower()}, which is not supported")

    def _repeat(self, least: int, most: Any, inner: Any, then: int) -> int:
        if most is ops.MAXREPEAT:
            loop = self._add(_State(None, ()))
            self._states[loop] = _State(None, (self._sequence(inner, loop), then))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._add(_State(None, (self._sequence(inner, then), end)))
        for _ in range(least):
            then = self._sequence(inner, then)
        return then

    def _charset(self, op: Any, argument: Any) -> frozenset[str]:
        if op is ops.ANY:
            return self._alphabet - {"\n"}
        if op in (ops.LITERAL, ops.NOT_LITERAL):
            chars = self._both_cases({chr(argument)})
            return chars if op is ops.LITERAL else self._alphabet - chars
        chars, is_negated = frozenset[str](), False
        for kind, value in argument:
            if kind is ops.NEGATE:
                is_negated = True
            elif kind is ops.LITERAL:
                chars |= self._both_cases({chr(value)})
            elif kind is ops.RANGE:
                chars |= self._both_cases({char for char in self._alphabet if value[0] <= ord(char) <= value[1]})
            else:
                is_complement = value in _COMPLEMENTS
                category = _CATEGORIES[_COMPLEMENTS[value] if is_complement else value]
                chars |= self._alphabet - category if is_complement else category
        return self._alphabet - chars if is_negated else chars

    def _both_cases(self, chars: set[str]) -> frozenset[str]:
        if self._ignores_case:
            return frozenset(other for char in chars for other in (char.lower(), char.upper(), char))
        return frozenset(chars)

    def _add(self, state: _State) -> int:
        if len(self._states) >= _MAX_STATES:
            raise ValueError(
                f"a regular expression of {len(self._pattern)} characters is too large: {_MAX_STATES} states"
            )
        self._states.append(state)
        return len(self._states) - 1

    # -- running -------------------------------------------------------------------------------------------------------

    def _step(self, current: frozenset[int], char: str) -> frozenset[int]:
        states = (self._states[index] for index in current)
        return self._closure([after for state in states if char in (state.chars or ()) for after in state.successors])

    def _closure(self, begin: Iterable[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """All states that are reached without a character."""
        found: set[int] = set()
        waiting = list(begin)
        while waiting:
            index = waiting.pop()
            if index in found:
                continue
            found.add(index)
            state = self._states[index]
            is_open = (at_start or not state.is_only_at_start) and (at_end or not state.is_only_at_end)
            if state.chars is None and is_open:
                waiting.extend(state.successors)
        return frozenset(found)
