"""Which variables and files the options of a client may name: for programs that take options from others.

An option such as `sasl_password=env:NAME` sends what is in the variable to a broker that the same options choose. Where
options come from a form, from SQL or from a job of another user, the program bounds what they may name.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kafkaprod.config.secret import LiveSecret
from kafkaprod.threads import importing

if TYPE_CHECKING:
    from kafkaprod.config.producer_options import ProducerOptions

VARIABLE: Final = "KAFKAPROD_ALLOWED_SECRET_SOURCES"
"""Bounds all clients of a process; options can narrow it only."""
_SENT_FILES: Final = ("sasl_oauthbearer_assertion_file", "sasl_oauthbearer_assertion_template_file")
_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_NONE: Final = "none"


class SecretSources:
    """`none`, or a list of `env:NAME`, `env:PREFIX*`, `file:/PATH` and `file:/DIRECTORY/`. Kept as a tuple."""

    __slots__ = ()
    type_name = "list"
    allowed = "none, or a list of env:NAME, env:PREFIX*, file:/PATH and file:/DIRECTORY/"

    def parse(self, value: object) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise ValueError(value)
        kept = tuple(filter(None, (item.strip() for item in items)))
        if kept == (_NONE,):
            return ()
        if (isinstance(value, str) and not kept) or not all(map(_is_source, kept)):
            raise ValueError(value)
        return kept

    def show(self, value: tuple[str, ...]) -> str:
        return repr(",".join(value) or _NONE)


@importing
def _url_parsing() -> ModuleType:
    from urllib import parse

    return parse


def _is_source(item: str) -> bool:
    kind, _, name = item.partition(":")
    return (kind == "env" and name != "") or (kind == "file" and os.path.isabs(name))


def refused_source(options: ProducerOptions, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first option that names a place which may not be read, and the place; None if all may be.

    Args:
        options: Those of a client.
        names: Those that hold secrets.
    """
    bounds = [bound for bound in (options.allowed_secret_sources, _of_process()) if bound is not None]
    if not bounds:
        return None
    for name, place in _places(options, names):
        if not all(any(_allows(item, place) for item in bound) for bound in bounds):
            return name, place
    return None


def is_allowed_in_process(place: str) -> bool:
    """Whether the bound of the process, if there is one, allows a place: for options that are no client's."""
    bound = _of_process()
    return bound is None or any(_allows(item, place) for item in bound)


def _of_process() -> tuple[str, ...] | None:
    """Return the bound of the process; one that cannot be read allows nothing."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    try:
        return SecretSources().parse(text)
    except ValueError:
        return ()


def _places(options: ProducerOptions, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return what options name whose content is sent somewhere, each with its option."""
    values = [(name, getattr(options, name)) for name in names]
    places = [(name, value.place) for name, value in values if isinstance(value, LiveSecret)]
    places += [(name, f"file:{path}") for name in _SENT_FILES if (path := getattr(options, name)) is not None]
    url = options.sasl_oauthbearer_token_endpoint_url
    if url is not None and url.startswith("file:"):
        parse = _url_parsing()
        places.append((_ENDPOINT, f"file:{parse.unquote(parse.urlsplit(url).path)}"))
    return places


def _allows(item: str, place: str) -> bool:
    kind, _, name = place.partition(":")
    allowed_kind, _, allowed = item.partition(":")
    if kind != allowed_kind:
        return False
    if kind == "env":
        return name.startswith(allowed[:-1]) if allowed.endswith("*") else name == allowed
    path = os.path.realpath(name)  # neither .. nor a link leads out of a directory
    inside = os.path.join(os.path.realpath(allowed), "")
    return path.startswith(inside) if allowed.endswith("/") else path == os.path.realpath(allowed)
