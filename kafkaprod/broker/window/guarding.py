"""Who may ask the window: the page of its own address, with the token. Everything else is refused.

    Host          one of 127.0.0.1, localhost, [::1] with the port, or what --ui-host names; once        400, 421
    Origin        missing, or http:// with that host; needed for changes                                       403
    Sec-Fetch-Site  missing, same-origin or none; but for the page itself, which links in other pages reach    403
    token         all but the page's own files, which contain nothing                                          403

So a name that leads to 127.0.0.1 (DNS rebinding), a page of another port and a form of another site reach nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from email.message import Message
from typing import Final, NamedTuple

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Each answer has them: nothing but the page's own script runs, and no other page can read or embed anything."""

TOKEN_HEADER: Final = "X-Kafkaprod-Token"
_SITES: Final = ("same-origin", "none")


class Refusal(NamedTuple):
    """Why a request is refused: the status of HTTP, and words for a person."""

    status: int
    text: str


class Guard:
    """Decides for one server.

    Args:
        hosts: The values of Host that are its own.
        token: The secret of the address.
    """

    def __init__(self, hosts: Sequence[str], token: str) -> None:
        self._hosts = frozenset(hosts)
        self._token = token.encode()

    def check_place(self, headers: Message, *, is_page: bool, is_change: bool) -> Refusal | None:
        """Check where a request comes from and which host it names; None lets it pass."""
        hosts = headers.get_all("Host") or []
        if len(hosts) != 1:
            return Refusal(400, "a request names one host")
        if hosts[0].lower() not in self._hosts:
            return Refusal(421, "this address is not the one that the broker printed")
        origins = headers.get_all("Origin") or []
        if len(origins) > 1 or (is_change and not origins):
            return Refusal(403, "a change names its origin once")
        if origins and origins[0].lower() not in {f"http://{host}" for host in self._hosts}:
            return Refusal(403, "the page of another address may not ask")
        sites = headers.get_all("Sec-Fetch-Site") or []
        if not is_page and any(site not in _SITES for site in sites):
            return Refusal(403, "the page of another site may not ask")
        return None

    def knows(self, token: str | None) -> bool:
        """Return whether a token is the one of the address."""
        return hmac.compare_digest((token or "").encode(errors="surrogatepass"), self._token)
