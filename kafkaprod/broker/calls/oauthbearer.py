"""The broker's half of OAUTHBEARER, for tokens without a signature: as Kafka's unsecured validator, for tests only.

Such a token is a JSON web token with the algorithm `none`; its claims `sub` and `exp` count. Source: RFC 7628.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable
from typing import Any, Final

from kafkaprod.errors import AuthenticationError

MAX_TOKEN_MESSAGE_BYTES: Final = 64 << 10
_REFUSAL: Final = b'{"status":"invalid_token"}'
_LAST_S: Final = 253_402_300_799  # the end of the year 9999: what a clock can show
_PREFIX: Final = "auth=Bearer "


class BearerExchange:
    """One login by a token.

    Args:
        now_s: Seconds since 1970.

    Attributes:
        user: The claim `sub`; None until the token is accepted.
        ends_at_s: The claim `exp`: when the login ends.
    """

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self.user: str | None = None
        self.ends_at_s: float | None = None
        self._now_s = now_s
        self._was_refused = False

    def step(self, message: bytes) -> bytes:
        """Accept the token, or refuse it: the client acknowledges that with 0x01, and the login fails.

        Raises:
            AuthenticationError: The message after a refusal, or one that is malformed.
        """
        if self._was_refused:
            raise AuthenticationError(_REFUSAL.decode())
        try:
            parts = message.decode().split("\x01")
        except UnicodeDecodeError:
            raise AuthenticationError("message is not UTF-8") from None
        token = next((part.removeprefix(_PREFIX) for part in parts[1:] if part.startswith(_PREFIX)), None)
        if token is None or not parts[0].startswith("n,"):
            raise AuthenticationError("malformed OAUTHBEARER message")
        claims = _claims(token)
        user, end = claims.get("sub"), claims.get("exp")
        if not isinstance(end, int | float) or not self._now_s() < end <= _LAST_S:  # nor NaN
            end = None
        if not isinstance(user, str) or not user or end is None:
            self._was_refused = True
            return _REFUSAL
        self.user, self.ends_at_s = user, float(end)
        return b""


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a token without a signature; nothing for any other."""
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or signature or _object(header).get("alg") != "none":
        return {}
    return _object(payload)


def _object(part: str) -> dict[str, Any]:
    try:
        fields = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
