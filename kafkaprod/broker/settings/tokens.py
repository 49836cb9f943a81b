"""Delegation tokens as a broker uses them: for logins, and to describe them. The controller makes and changes them."""

from __future__ import annotations

from collections.abc import Callable

from kafkaprod.broker.calls.login import TokenLogin
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.records import DelegationTokenRecord
from kafkaprod.broker.metadata.tokens import TokenConfig, TokenHmac, password_of, principal_parts
from kafkaprod.structs import BytesLike


class Tokens:
    """See the module docstring. Thread-safe: it reads the image, whose tokens are values.

    Attributes:
        config: The options.
    """

    def __init__(self, config: TokenConfig, find_image: Callable[[], ClusterImage]) -> None:
        """Read tokens from an image.

        Args:
            config: The options.
            find_image: Returns the metadata of now.
        """
        self.config = config
        self._find_image = find_image

    def all(self) -> list[DelegationTokenRecord]:
        """Return all tokens, those that are over included."""
        return list(self._find_image().tokens.values())

    def hmac_of(self, token: DelegationTokenRecord) -> TokenHmac:
        """Return a token's secret."""
        return self.config.hmac_of(token.token_id)

    def id_of(self, token_hmac: BytesLike) -> str | None:
        """Return the id of the token that has a secret, None if there is no such one."""
        wanted = TokenHmac(token_hmac)
        return {self.hmac_of(token): token.token_id for token in self.all()}.get(wanted)

    def end_of(self, token_id: str) -> int | None:
        """Return when a token ends, in milliseconds since 1970, None for one that is gone."""
        token = self._find_image().tokens.get(token_id)
        return None if token is None else token.expiration_timestamp

    def find_login(self, token_id: str) -> TokenLogin | None:
        """Return what a login with a token needs, None if there is no such token."""
        token = self._find_image().tokens.get(token_id) if self.config.is_enabled else None
        if token is None:
            return None
        _, owner = principal_parts(token.owner)
        return TokenLogin(owner, password_of(self.hmac_of(token)), token.expiration_timestamp / 1000)
