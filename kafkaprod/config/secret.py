"""A text that no log shows: passwords and tokens in the configuration."""

from __future__ import annotations

HIDDEN = "[hidden]"


class Secret:
    """Holds a text; `str`, `repr` and formatting give `[hidden]`, only `reveal` gives the text. Immutable."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; the caller answers for where it goes."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # loads OpenSSL, which a plain connection does not need

        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)
