"""The delegation tokens of a `RightsWorld`: whose they are, and the marks that stand for their HMACs in requests.

mark of MINE    Alice's own, which Bob may renew
mark of SECRET  a stranger's, which only root may see; only in a world with secrets
no mark         that of the user MINE, whom Alice may describe, and the one that `TOKEN` logs in with, Alice's as well
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkaprod.broker.metadata.tokens import password_of
from kafkaprod.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkaprod.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tests.support.broker.naming_requests import HMAC_MARKS, MINE, SECRET
from tests.support.net.logins import log_in_by_scram
from tests.support.net.raw_client import RawClient

if TYPE_CHECKING:
    from tests.support.broker.rights_world import RightsWorld

SPARE_MS = 60_000
"""A token that ends sooner was expired by a request."""


class RightsTokens:
    """See the module docstring."""

    def __init__(
        self, world: RightsWorld, users: tuple[str, str, str], *, has_secrets: bool, wait: Callable[[], object]
    ):
        """Make the tokens.

        Args:
            world: Whose broker has them.
            users: Alice, Bob and root.
            has_secrets: Make the one that only root may see.
            wait: Returns when all brokers know of a change.
        """
        self._world = world
        self._alice, self._bob, self._root = users
        self._wait = wait
        self._hmacs: dict[str, bytes] = {}
        self._login = self._made(self._alice)
        self._made(self._root, owner=MINE)
        if has_secrets:
            self._hmacs[SECRET] = bytes(self._made(self._root, owner=SECRET).hmac)
        self.restore()

    def restore(self) -> None:
        """Make Alice's token again if it is over."""
        now_ms = time.time() * 1_000
        known = {bytes(token.hmac): token.expiry_timestamp for token in self._described(self._alice)}
        if known.get(self._hmacs.get(MINE, b""), 0) < now_ms + SPARE_MS:
            self._hmacs[MINE] = bytes(self._made(self._alice, renewer=self._bob).hmac)
            self._wait()

    def fill(self, frame: bytes) -> bytes:
        """Put HMACs in the place of marks."""
        for name, hmac in self._hmacs.items():
            frame = frame.replace(HMAC_MARKS[name], hmac)
        return frame

    def log_in(self, client: RawClient) -> None:
        """Log in with Alice's other token."""
        password = password_of(bytes(self._login.hmac)).decode()
        assert log_in_by_scram(client, self._login.token_id, password, is_token=True) == 0

    def secrets(self) -> str:
        """Return what neither Alice nor Bob must change."""
        own = [token for token in self._described(SECRET) if token.principal_name == SECRET]  # not as a renewer
        return str(sorted(own, key=str))

    def count(self) -> int:
        """Return how many tokens there are."""
        return len(self._described())

    def _described(self, owner: str | None = None) -> list[DescribedDelegationToken]:
        owners = None
        if owner is not None:
            owners = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner)]
        request = DescribeDelegationTokenRequest(owners=owners)
        answer = self._world.call(self._root, request, DescribeDelegationTokenResponse, 3)
        assert answer.error_code == 0, answer
        return list(answer.tokens)

    def _made(self, user: str, *, owner: str | None = None, renewer: str = "") -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[CreatableRenewers(principal_type="User", principal_name=renewer)] if renewer else [],
            max_lifetime_ms=-1,
        )
        made = self._world.call(user, request, CreateDelegationTokenResponse, 3)
        assert made.error_code == 0, made
        return made
