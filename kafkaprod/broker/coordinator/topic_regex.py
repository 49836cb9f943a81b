"""Regular expressions of clients over names, by RE2 (extra `kafkaprod[regex]`).

Kafka uses RE2 as well: its time grows with pattern and name only, so that a pattern such as `(a+)+` does not stop the
broker. It has no back references and no lookaround. Without the package every pattern is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from typing import Final

_MAX_MEMORY_BYTES: Final = 1 << 20
"""What one pattern may take when it is compiled and matched; a larger one is refused."""
MAX_PATTERN_LENGTH: Final = 8_192
_MAX_MATCHING_S: Final = 0.1
"""CPU time of a pattern over all names there are: the dearest takes 30 ms for a name of 1,000 characters."""


class TopicRegex:
    """See the module docstring."""

    def __init__(self, pattern: str, max_memory_bytes: int = _MAX_MEMORY_BYTES) -> None:
        """Compile.

        Args:
            pattern: The expression.
            max_memory_bytes: How large it may become when it is compiled.

        Raises:
            ValueError: The pattern is invalid, too large, or uses what RE2 does not have, or the package is missing;
                the message says what.
        """
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise ValueError(
                f"a regular expression of {len(pattern)} characters is longer than {MAX_PATTERN_LENGTH}: "
                f"{pattern[:40]!r}..."
            )
        try:
            re2 = import_module("re2")
        except ImportError:
            raise ValueError(
                f"regular expression {pattern!r}: the broker needs the package google-re2 for patterns of clients: "
                "pip install 'kafkaprod[regex]'"
            ) from None
        options = re2.Options()
        options.max_mem = max_memory_bytes
        options.log_errors = False
        options.never_capture = True  # max_mem does not bound captures, whose memory grows with their square
        try:
            self._pattern = pattern
            self._regex = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            reason = str(error) if isinstance(error, UnicodeError) else error.args[0].decode("utf-8", "replace")
            raise ValueError(f"{pattern!r} is not a valid regular expression: {reason}") from error

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._regex.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names that match as a whole.

        Raises:
            ValueError: That takes longer than one request may hold up the others.
        """
        found: list[str] = []
        began_s = time.thread_time()
        for name in names:
            if self.matches(name):
                found.append(name)
            if time.thread_time() - began_s > _MAX_MATCHING_S:
                raise ValueError(
                    f"regular expression {self._pattern!r} takes more than {_MAX_MATCHING_S} s over the names here: "
                    "make it simpler, without counted repetitions of alternatives"
                )
        return frozenset(found)
