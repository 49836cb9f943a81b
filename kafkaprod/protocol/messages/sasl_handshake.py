"""SaslHandshake (17): choose a SASL mechanism. Never flexible.

After version 0 the tokens are bare frames; after version 1 they travel in SaslAuthenticate. Source: KIP-43, KIP-152.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, STRING, array
from kafkaprod.protocol.schema import Request, Response, field


class SaslHandshakeRequest(Request, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    """Names a mechanism."""

    mechanism: str = field(STRING)


class SaslHandshakeResponse(Response, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    """The mechanisms the broker offers."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
