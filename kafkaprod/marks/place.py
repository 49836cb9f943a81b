"""Where the mark of a write is: one name for group and transactional id, partition 0 of a topic of the write. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from kafkaprod.errors import ConfigError

DEFAULT_PREFIX: Final = "kafkaprod.write."
_MOST_CHARACTERS: Final = 200
_AS_THEY_ARE: Final = "/:.@+=,~!*'()$"  # what no broker, tool or shell of theirs takes for something else


def mark_name(prefix: str, write_id: object) -> str:
    """Return the name of the group and of the transactional id of a write.

    Args:
        prefix: Begins all such names.
        write_id: The id. What is not printable ASCII, blanks and `%` are percent-encoded: one name, one id.

    Raises:
        ConfigError: The id is no text, empty, or too long.
    """
    if not isinstance(write_id, str) or not write_id:
        raise ConfigError(f"write_id must be a text that is not empty, not {_shown(write_id)}")
    try:
        encoded = quote(write_id, safe=_AS_THEY_ARE)
    except UnicodeEncodeError:
        raise ConfigError(f"write_id={write_id!r} has a lone surrogate, which no name can hold") from None
    if len(encoded) > _MOST_CHARACTERS:
        raise ConfigError(
            f"write_id has {len(encoded)} characters in its encoded form, and at most {_MOST_CHARACTERS} are allowed: "
            "give a digest of it, such as hashlib.sha256(...).hexdigest()"
        )
    return prefix + encoded


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
