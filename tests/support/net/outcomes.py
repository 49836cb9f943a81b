"""Tokens in the place of callbacks, for tests that only compare which request ended."""

from __future__ import annotations

from typing import cast

from kafkaprod.protocol.in_flight import OnDone


def outcome_token(name: object) -> OnDone:
    """Return `name` as the `on_done` of a request: connections keep it and never call it."""
    return cast(OnDone, name)
