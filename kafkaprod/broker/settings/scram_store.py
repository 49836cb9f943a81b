"""SCRAM credentials that clients set (KIP-554), over those made of the passwords the broker was started with.

Numbers of mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512. A user may have another password with each. Passwords for
PLAIN cannot be set by clients.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.login import SCRAM_HASHES, Credentials, ScramKeys, scram_keys_of
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.settings.settings import SCRAM, Settings
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.security.scram import MIN_ITERATIONS

MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MAX_ITERATIONS = 16_384


class ScramStore:
    """See the module docstring. Changed on the control thread; a change counts from the next login on."""

    def __init__(self, settings: Settings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self.follow()

    def follow(self) -> None:
        """Take over what the settings say; in a cluster other brokers change them, too."""
        self._credentials.alter_scram_keys(
            {
                (mechanism, user): None if saved is None else _decode(saved)
                for user, mechanisms in self._settings.get(SCRAM).items()
                for mechanism, saved in mechanisms.items()
            }
        )

    def describe(self) -> dict[str, dict[int, int]]:
        """Return the iterations of each mechanism of each user."""
        found: dict[str, dict[int, int]] = {}
        for number, mechanism in MECHANISMS.items():
            for user, keys in self._credentials.scram_users(mechanism).items():
                found.setdefault(user, {})[number] = keys.iterations
        return found

    def check_deletion(self, user: str, mechanism: int) -> None:
        """Check that there is such a credential.

        Raises:
            RequestRefusedError: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM or RESOURCE_NOT_FOUND.
        """
        self._check(user, mechanism)
        if not self._credentials.has_scram_keys(MECHANISMS[mechanism], user):
            raise RequestRefusedError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )

    def check_upsertion(self, user: str, mechanism: int, iterations: int) -> None:
        """Check that such a credential may be set.

        Raises:
            RequestRefusedError: UNACCEPTABLE_CREDENTIAL or UNSUPPORTED_SASL_MECHANISM.
        """
        self._check(user, mechanism)
        if iterations < MIN_ITERATIONS:
            raise RequestRefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if iterations > MAX_ITERATIONS:
            raise RequestRefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")

    def alter(self, wanted: Mapping[tuple[str, int], ScramKeys | None]) -> None:
        """Set credentials of users and mechanisms that were checked, or delete them (None); all or none.

        Raises:
            RequestRefusedError: KAFKA_STORAGE_ERROR, the disk refused; nothing was changed.
        """
        users = dict(self._settings.get(SCRAM))
        for (user, mechanism), keys in wanted.items():
            users[user] = {**users.get(user, {}), MECHANISMS[mechanism]: None if keys is None else _encode(keys)}
        self._settings.put(SCRAM, users)
        self._credentials.alter_scram_keys(
            {(MECHANISMS[number], user): keys for (user, number), keys in wanted.items()}
        )

    def _check(self, user: str, mechanism: int) -> None:
        if not user:
            raise RequestRefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if len(user) > MAX_ID_CHARS:
            problem = f"Username has more than {MAX_ID_CHARS} characters"
            raise RequestRefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
        if mechanism not in MECHANISMS:
            raise RequestRefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def keys_of(mechanism: int, salted_password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys that a credential is kept as."""
    return scram_keys_of(SCRAM_HASHES[MECHANISMS[mechanism]], salted_password, salt, iterations)


def _encode(keys: ScramKeys) -> dict[str, Any]:
    secrets = {name: base64.b64encode(getattr(keys, name)).decode() for name in ("salt", "stored_key", "server_key")}
    return {**secrets, "iterations": keys.iterations}


def _decode(saved: Mapping[str, Any]) -> ScramKeys:
    salt, stored_key, server_key = (base64.b64decode(saved[name]) for name in ("salt", "stored_key", "server_key"))
    return ScramKeys(salt, stored_key, server_key, int(saved["iterations"]))
