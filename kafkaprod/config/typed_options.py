"""Make option_types.py, by which editors and type checkers know the options as keyword arguments.

`python -m kafkaprod.config types kafkaprod/config/option_types.py`
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from kafkaprod.config.addresses import Addresses
from kafkaprod.config.host_patterns import Hosts
from kafkaprod.config.kinds import (
    Acks,
    Boolean,
    Choice,
    HookList,
    Integer,
    MechanismName,
    Path,
    SecretText,
    SyncRule,
    Text,
    TlsContext,
    Url,
)
from kafkaprod.config.option import Option
from kafkaprod.config.producer_config import OPTIONS
from kafkaprod.config.refused import REFUSED_VALUES
from kafkaprod.config.secret_sources import SecretSources, UrlPrefixes
from kafkaprod.config.topic_options import TopicOptionsKind

_HEAD: Final = '''\
"""The options of a producer as keyword arguments: for editors, type checkers, and what looks at type hints.

Made by `python -m kafkaprod.config types PATH`; change the table in kafkaprod/config instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kafkaprod.config.secret import Secret

if TYPE_CHECKING:
    import ssl


class OptionTypes(TypedDict, total=False):
    """Every option under its own name and, with underscores, under its other ones. Values may also be text."""
'''
_TYPES: Final[Mapping[type, str]] = {
    Integer: "int | str",
    Boolean: "bool | str",
    Text: "str",
    Url: "str",
    Path: "str | os.PathLike[str]",
    SecretText: "str | Secret",
    SyncRule: "str",
    MechanismName: "str",
    Acks: 'Literal[-1, 0, 1, "-1", "0", "1", "all"]',
    Hosts: "str | Sequence[str]",
    SecretSources: "str | Sequence[str]",
    UrlPrefixes: "str | Sequence[str]",
    Addresses: "str | Sequence[str | tuple[str, int]]",
    HookList: "Iterable[Any]",
    TlsContext: "ssl.SSLContext",
    TopicOptionsKind: "str | Mapping[str, Mapping[str, Any]]",
}


def typed_options() -> str:
    """Return the source of option_types.py."""
    lines = [line for option in OPTIONS.values() for line in _entry(option)]
    others = [name.replace(".", "_") for name in ["sasl.jaas.config", *REFUSED_VALUES]]
    return "\n".join([_HEAD, *lines, *(f"    {name}: str" for name in others), ""])


def _entry(option: Option) -> Iterator[str]:
    kind = _choices(option.kind) if isinstance(option.kind, Choice) else _TYPES.get(type(option.kind), "Any")
    takes_none = option.is_nullable or None in getattr(option.kind, "synonyms", ())
    if takes_none and kind != "Any":
        kind += " | None"
    line = f"    {option.name}: {kind}"
    yield line if len(line) <= 120 else line.replace("[", "[\n        ").replace("]", "\n    ]")
    doc = f'"""{option.doc.replace(chr(92), chr(92) * 2)}"""'
    yield textwrap.indent(textwrap.fill(doc, 116), "    ")
    for alias, translate in option.aliases.items():
        yield f"    {alias.replace('.', '_')}: {kind if translate is None else 'Any'}"


def _choices(kind: Choice) -> str:
    """Return the type of the names and their synonyms; type checkers find one that is misspelled."""
    names = [*kind.names, *(name for name in kind.synonyms if isinstance(name, str) and name not in kind.names)]
    return f"Literal[{', '.join(map(repr, names))}]".replace("'", '"')
