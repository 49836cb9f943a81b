"""The embedded broker's process with Amazon MSK's check of tokens: presigned URLs, verified by the same AWS keys.

The check is written from the description of Signature Version 4, not by the package that signs. Source: AWS General
Reference, "Signature Version 4 signing process", query parameters; aws-msk-iam-sasl-signer's README.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from kafkaprod.broker.calls import login
from kafkaprod.broker.calls.oauthbearer import BearerExchange
from kafkaprod.broker.embedding import child, embedded

_KEYS = "KAFKAPROD_MSK_KEYS"
_LOGIN_S = "KAFKAPROD_MSK_LOGIN_S"
REGION = "eu-west-1"


@contextmanager
def msk_brokers(keys: dict[str, str], login_s: float = 900.0) -> Iterator[None]:
    """Have brokers that are embedded in the block take tokens of MSK only.

    Args:
        keys: Secret by access key.
        login_s: How long a login is valid at most.
    """
    module: Any = embedded
    start = module.start_module
    os.environ[_KEYS], os.environ[_LOGIN_S] = json.dumps(keys), str(login_s)
    module.start_module = lambda _: start(__name__)
    try:
        yield
    finally:
        module.start_module = start
        del os.environ[_KEYS], os.environ[_LOGIN_S]


def signature(secret: str, host: str, fields: dict[str, str]) -> str:
    """The signature of GET / with these fields as the query."""
    _, day, region, service, ending = fields["X-Amz-Credential"].split("/")
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(fields.items()))
    request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = f"{day}/{region}/{service}/{ending}"
    text = f"AWS4-HMAC-SHA256\n{fields['X-Amz-Date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, ending, text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def end_of(token: str, keys: dict[str, str], now_s: float) -> tuple[str, float] | None:
    """The access key that signed a token, and when it ends; None: it is not valid."""
    try:
        address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
        fields = dict(parse_qsl(address.query, strict_parsing=True))
        signed = fields.pop("X-Amz-Signature")
        fields.pop("User-Agent")  # added after the signature
        access_key, _, region, service, _ = fields["X-Amz-Credential"].split("/")
        begin_s = calendar.timegm(time.strptime(fields["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
        end_s = begin_s + int(fields["X-Amz-Expires"])
    except (ValueError, KeyError):
        return None
    is_meant = fields.get("Action") == "kafka-cluster:Connect" and (region, service) == (REGION, "kafka-cluster")
    secret = keys.get(access_key)
    if not is_meant or secret is None or end_s <= now_s:
        return None
    host = address.hostname or ""
    return (access_key, end_s) if hmac.compare_digest(signature(secret, host, fields), signed) else None


class MskExchange(BearerExchange):
    """One login by a token of MSK."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        super().__init__(now_s)
        self._keys: dict[str, str] = json.loads(os.environ[_KEYS])
        self._login_s = float(os.environ[_LOGIN_S])

    def step(self, message: bytes) -> bytes:
        """Accept the token, or refuse it."""
        token = message.decode().partition("auth=Bearer ")[2].partition("\x01")[0]
        valid = end_of(token, self._keys, self._now_s())
        if valid is None:
            return super().step(message)  # which takes no such token
        self.user, end_s = valid
        self.ends_at_s = min(end_s, self._now_s() + self._login_s)
        return b""


if __name__ == "__main__":
    replaced: Any = login
    replaced.BearerExchange = MskExchange
    sys.exit(child.main())
