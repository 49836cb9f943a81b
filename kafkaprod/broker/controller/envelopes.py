"""Envelopes: how a client's request, its principal and its address travel to the controller, and the answer back.

    broker      seal(request, version, principal, host) -> Envelope         opened(Envelope's answer) -> response
    controller  unseal(Envelope) -> request, version, principal             answered(response, version)

The controller decides with a principal in hand what two brokers could decide differently. Pure. Source: KIP-590.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

from kafkaprod.broker.metadata.tokens import principal_parts
from kafkaprod.errors import CorruptDataError, UnsupportedVersionError
from kafkaprod.protocol.api_keys import API_KEYS
from kafkaprod.protocol.frames import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    read_request_header,
    read_request_start,
    split_response,
)
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse, PrincipalData
from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.protocol.schema import Request, Response

_PRINCIPAL_VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")


class Unsealed(NamedTuple):
    """What an envelope holds; the principal as "User:ann"."""

    request: Request
    version: int
    principal: str


def seal(request: Request, version: int, principal: str, host: str) -> EnvelopeRequest:
    """Return the envelope of a client's request.

    Args:
        request: What the client has sent.
        version: Its version.
        principal: Who has sent it.
        host: From which address.
    """
    header = RequestHeader(request.api, version, 0)
    kind, name = principal_parts(principal)
    writer = Writer()
    # Whoever logged in with a token is not in any envelope: such clients may have nothing to do with tokens.
    PrincipalData.codec(_PRINCIPAL_VERSION, True).write(writer, PrincipalData(type=kind, name=name))
    return EnvelopeRequest(
        request_data=encode_request_header(header, request.is_flexible(version)) + request.encode(version),
        request_principal=_VERSION.pack(_PRINCIPAL_VERSION) + writer.getvalue(),
        client_host_address=_packed(host),
    )


def unseal(envelope: EnvelopeRequest) -> Unsealed:
    """Return what an envelope holds.

    Raises:
        CorruptDataError: It is damaged, or the principal is of a version that is not known.
    """
    reader = Reader(envelope.request_data)
    api_key, version, _ = read_request_start(envelope.request_data)
    api = API_KEYS.get(api_key)
    if api is None:
        raise CorruptDataError(f"envelope of a request of API {api_key}, which is not known")
    request_class = REQUESTS[api]
    try:
        read_request_header(reader, request_class.is_flexible(version))
        request = request_class.decode(reader.read_view(reader.remaining), version)
    except UnsupportedVersionError as error:
        raise CorruptDataError(f"envelope: {error}") from error
    return Unsealed(request, version, _principal(bytes(envelope.request_principal or b"")))


def answered(response: Response, version: int) -> EnvelopeResponse:
    """Return the envelope of an answer for the client."""
    header = encode_response_header(response.api, response.is_flexible(version), 0)
    return EnvelopeResponse(response_data=header + response.encode(version))


def opened(answer: Response | None, request: Request, version: int) -> Response | None:
    """Return the answer for the client, None if there is none.

    Raises:
        CorruptDataError: It is damaged.
    """
    if not isinstance(answer, EnvelopeResponse) or answer.response_data is None:
        return None
    response_class = RESPONSES[request.api]
    _, body = split_response(answer.response_data, request.api, response_class.is_flexible(version))
    return response_class.decode(body, version)


def _principal(data: bytes) -> str:
    if len(data) < _VERSION.size or _VERSION.unpack_from(data)[0] != _PRINCIPAL_VERSION:
        raise CorruptDataError("envelope without a principal, or with one of a version that is not known")
    reader = Reader(data[_VERSION.size :])
    principal = PrincipalData.codec(_PRINCIPAL_VERSION, True).read(reader)
    reader.expect_end()
    return f"{principal.type}:{principal.name}"


def _packed(host: str) -> bytes:
    """Return the bytes of an address; none for a name."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""
