"""What the options of a client may name and use: for programs that take options from others.

An option such as `sasl_password=env:NAME` sends what is in the variable to a broker that the same options choose, one
such as `sasl_mechanism=GSSAPI` shows that broker who this process is, and one such as a token endpoint's address has
this machine send a request there. Where options come from a form, from SQL or from a job of another user, the program
bounds what they may name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kafkaprod.config.secret import LiveSecret, without_query
from kafkaprod.threads import importing

if TYPE_CHECKING:
    from kafkaprod.config.producer_options import ProducerOptions

VARIABLE: Final = "KAFKAPROD_ALLOWED_SECRET_SOURCES"
"""Bounds all clients of a process; options can narrow it only."""
URL_VARIABLE: Final = "KAFKAPROD_ALLOWED_URLS"
"""The same for addresses of HTTP servers."""
_USED_FILES: Final = (
    "sasl_oauthbearer_assertion_file",
    "sasl_oauthbearer_assertion_template_file",
    "sasl_oauthbearer_assertion_private_key_file",
    "sasl_kerberos_keytab",
    "ssl_certfile",
    "ssl_keyfile",
)
"""What is in them is sent, or proves who this process is, to servers that the same options choose."""
_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_NONE: Final = "none"
_IDENTITIES: Final = ("aws", "azure", "kerberos")
_HTTP_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class SecretSources:
    """`none`, or a list of places and identities. Kept as a tuple.

    `env:NAME`, `env:PREFIX*`, `file:/PATH` and `file:/DIRECTORY/`; `identity:aws`, `identity:azure` and
    `identity:kerberos` are logins that the machine or its environment has, without a secret in the options.
    """

    __slots__ = ()
    type_name = "list"
    allowed = "none, or a list of env:NAME, env:PREFIX*, file:/PATH, file:/DIRECTORY/ and identity:aws|azure|kerberos"

    def parse(self, value: object) -> tuple[str, ...]:
        return _parsed(value, _is_source)

    def show(self, value: tuple[str, ...]) -> str:
        return repr(",".join(value) or _NONE)


class UrlPrefixes:
    """`none`, or a list of `https://HOST[:PORT][/PATH]` and `http://...`; all addresses below one are meant."""

    __slots__ = ()
    type_name = "list"
    allowed = "none, or a list of addresses such as https://HOST, https://HOST:PORT/PATH"

    def parse(self, value: object) -> tuple[str, ...]:
        return _parsed(value, lambda item: _url_parts(item) is not None)

    def show(self, value: tuple[str, ...]) -> str:
        return repr(",".join(value) or _NONE)


def _parsed(value: object, is_item: Callable[[str], bool]) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError(value)
    kept = tuple(filter(None, (item.strip() for item in items)))
    if kept == (_NONE,):
        return ()
    if (isinstance(value, str) and not kept) or not all(map(is_item, kept)):
        raise ValueError(value)
    return kept


@importing
def _url_parsing() -> ModuleType:
    from urllib import parse

    return parse


def _is_source(item: str) -> bool:
    kind, _, name = item.partition(":")
    if kind == "identity":
        return name in _IDENTITIES
    return (kind == "env" and name != "") or (kind == "file" and os.path.isabs(name))


def refusal(options: ProducerOptions, secrets: tuple[str, ...]) -> str | None:
    """Return a sentence on the first option that names or uses what may not be; None if all may be.

    Args:
        options: Those of a client.
        secrets: The names of options that hold secrets.
    """
    refused = _first_refused(
        _bounds(options.allowed_secret_sources, VARIABLE, SecretSources()), _places(options, secrets), _allows
    )
    if refused is not None:
        return f"{refused} is not allowed: allowed_secret_sources, or the variable {VARIABLE}, does not name that place"
    url = options.sasl_oauthbearer_token_endpoint_url
    urls = [(_ENDPOINT, url)] if url is not None and not url.startswith("file:") else []
    refused = _first_refused(_bounds(options.allowed_urls, URL_VARIABLE, UrlPrefixes()), urls, _is_below)
    if refused is not None:
        return f"{refused} is not allowed: allowed_urls, or the variable {URL_VARIABLE}, does not name that address"
    return None


def _first_refused(
    bounds: list[tuple[str, ...]], named: list[tuple[str, str]], allows: Callable[[str, str], bool]
) -> str | None:
    """Return `option=place` of the first place that some bound does not have."""
    for name, place in named if bounds else ():
        if not all(any(allows(item, place) for item in bound) for bound in bounds):
            return f"{name}={without_query(place)}"
    return None


def _bounds(
    of_options: tuple[str, ...] | None, variable: str, kind: SecretSources | UrlPrefixes
) -> list[tuple[str, ...]]:
    return [bound for bound in (of_options, _of_process(variable, kind)) if bound is not None]


def is_allowed_in_process(place: str) -> bool:
    """Whether the bound of the process, if there is one, allows a place: for options that are no client's."""
    bound = _of_process(VARIABLE, SecretSources())
    return bound is None or any(_allows(item, place) for item in bound)


def is_url_allowed(url: str, allowed: tuple[str, ...] | None = None) -> bool:
    """Whether `allowed_urls` and the bound of the process allow an address: for those that are no client's option.

    Args:
        url: The address.
        allowed: The value of `allowed_urls`; None: not given.
    """
    bounds = _bounds(allowed, URL_VARIABLE, UrlPrefixes())
    return all(any(_is_below(item, url) for item in bound) for bound in bounds)


def _of_process(variable: str, kind: SecretSources | UrlPrefixes) -> tuple[str, ...] | None:
    """Return the bound of the process; one that cannot be read allows nothing."""
    text = os.environ.get(variable)
    if text is None:
        return None
    try:
        return kind.parse(text)
    except ValueError:
        return ()


def _places(options: ProducerOptions, secrets: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return, each with its option, what options name whose content is sent or used, and who they log in as."""
    values = [(name, getattr(options, name)) for name in secrets]
    places = [(name, value.place) for name, value in values if isinstance(value, LiveSecret)]
    places += [(name, f"file:{path}") for name in _USED_FILES if (path := getattr(options, name)) is not None]
    url = options.sasl_oauthbearer_token_endpoint_url
    if url is not None and url.startswith("file:"):
        parse = _url_parsing()
        places.append((_ENDPOINT, f"file:{parse.unquote(parse.urlsplit(url).path)}"))
    if options.security_protocol.startswith("SASL_"):
        if options.sasl_mechanism == "AWS_MSK_IAM":
            places.append(("sasl_mechanism=AWS_MSK_IAM", "identity:aws"))
        if options.sasl_mechanism == "GSSAPI" and options.sasl_kerberos_keytab is None:
            places.append(("sasl_mechanism=GSSAPI", "identity:kerberos"))
        if options.sasl_oauthbearer_metadata_authentication_type == "azure_imds":
            places.append(("sasl_oauthbearer_metadata_authentication_type=azure_imds", "identity:azure"))
    return places


def _allows(item: str, place: str) -> bool:
    kind, _, name = place.partition(":")
    allowed_kind, _, allowed = item.partition(":")
    if kind != allowed_kind:
        return False
    if kind == "identity":
        return name == allowed
    if kind == "env":
        return name.startswith(allowed[:-1]) if allowed.endswith("*") else name == allowed
    path = os.path.realpath(name)  # neither .. nor a link leads out of a directory
    inside = os.path.join(os.path.realpath(allowed), "")
    return path.startswith(inside) if allowed.endswith("/") else path == os.path.realpath(allowed)


def _url_parts(url: str) -> tuple[str, str, int, str] | None:
    """Return scheme, host, port and path of an address of HTTP; None for another scheme, or a path upwards."""
    parse = _url_parsing()
    try:
        parts = parse.urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        return None
    path = parse.unquote(parts.path)
    if scheme not in _HTTP_PORTS or not host or ".." in path.split("/") or "\\" in url:
        return None
    return scheme, host, port or _HTTP_PORTS[scheme], path


def _is_below(allowed: str, url: str) -> bool:
    """Whether an address is an allowed one, or has its path below that one's."""
    wanted, bound = _url_parts(url), _url_parts(allowed)
    if wanted is None or bound is None or wanted[:3] != bound[:3]:
        return False
    path, below = wanted[3], bound[3]
    return path == below or path.startswith(below if below.endswith("/") else f"{below}/")
