"""The options of groups of the consumer protocol, and their bounds. Source: Kafka, GroupCoordinatorConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from kafkaprod.errors import ConfigError
from kafkaprod.structs import INT32_MAX

MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


class ConsumerGroupConfig(NamedTuple):
    """The options of a group of the consumer protocol.

    Attributes:
        heartbeat_interval_ms: How often members must send a heartbeat.
        session_timeout_ms: A member without a heartbeat for this time is removed.
        max_size: Most members.
        min_heartbeat_interval_ms, max_heartbeat_interval_ms, min_session_timeout_ms, max_session_timeout_ms: Bounds of
            the first two, for the broker and for each group.
        regex_refresh_interval_ms: How often regular expressions are resolved again.
        migration_policy: Whether groups with members may change their protocol: `bidirectional`, `upgrade` (to the
            consumer protocol), `downgrade` (to the classic one) or `disabled`.
    """

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    max_size: int = INT32_MAX
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    regex_refresh_interval_ms: int = 600_000
    migration_policy: str = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become one of the consumer protocol."""
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group whose last member of the consumer protocol has left becomes a classic one."""
        return self.migration_policy in ("bidirectional", "downgrade")

    def with_own(self, values: Mapping[str, str]) -> Self:
        """Return the options of a group that has some of its own, under Kafka's names."""
        return self._replace(
            heartbeat_interval_ms=int(values.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms)),
            session_timeout_ms=int(values.get("consumer.session.timeout.ms", self.session_timeout_ms)),
        )

    def check_bounds(self, prefix: str) -> None:
        """Raise ConfigError unless interval and timeout are within their bounds; `prefix` begins their names."""
        for name, value, low, high in (
            (
                "heartbeat.interval.ms",
                self.heartbeat_interval_ms,
                self.min_heartbeat_interval_ms,
                self.max_heartbeat_interval_ms,
            ),
            ("session.timeout.ms", self.session_timeout_ms, self.min_session_timeout_ms, self.max_session_timeout_ms),
        ):
            if value < low:
                raise ConfigError(f"{prefix}{name}={value} must be at least group.consumer.min.{name}={low}")
            if value > high:
                raise ConfigError(f"{prefix}{name}={value} must be at most group.consumer.max.{name}={high}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"{prefix}heartbeat.interval.ms={self.heartbeat_interval_ms} must be less than "
                f"{prefix}session.timeout.ms={self.session_timeout_ms}"
            )
