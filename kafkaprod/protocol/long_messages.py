"""Error messages that are too long for the protocol: they may quote a name that is itself as long as a text may be."""

from __future__ import annotations

from typing import Final

from kafkaprod.protocol.schema import Struct

_MOST_CHARACTERS: Final = 1_000


def shorten_messages(answer: Struct) -> bool:
    """Cut long error messages in an answer; return whether there was one."""
    has_changed = False
    for item in type(answer).fields:
        value = getattr(answer, item.name)
        if item.name == "error_message" and isinstance(value, str) and len(value) > _MOST_CHARACTERS:
            setattr(answer, item.name, f"{value[: _MOST_CHARACTERS - 3]}...")
            has_changed = True
        elif isinstance(value, list):
            for element in value:
                has_changed |= isinstance(element, Struct) and shorten_messages(element)
    return has_changed
