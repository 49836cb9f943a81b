"""Which errors of a load another try may cure: scripts repeat the command for these, and for no others."""

from __future__ import annotations

import pytest

from kafkaprod.errors import (
    AuthenticationError,
    AuthorizationError,
    BootstrapError,
    BufferFullError,
    ConnectionLostError,
    DeliveryFailedError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    RequestTimedOutError,
)
from kafkaprod.loader.opening.errors import LoadError, LoadIsLockedError, is_temporary
from kafkaprod.protocol.error_codes import ErrorCode, error_for

TEMPORARY = [
    BootstrapError("no server"),
    BufferFullError("full"),
    ConnectionLostError("lost"),
    DeliveryTimeoutError("late"),
    MetadataTimeoutError("late"),
    RequestTimedOutError("late"),
    LoadIsLockedError("locked"),
    error_for(ErrorCode.NOT_ENOUGH_REPLICAS, "broker"),
    error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "broker"),
]
LASTING = [
    AuthenticationError("password"),
    AuthorizationError("topic"),
    error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="t"),
    LoadError("row 2"),
    FileNotFoundError(2, "No such file", "a.csv"),
    BrokenPipeError(32, "Broken pipe"),
    error_for(ErrorCode.INVALID_RECORD, "broker"),
]


def caused(error: BaseException) -> DeliveryFailedError:
    failed = DeliveryFailedError("1 record was not delivered")
    failed.__cause__ = error
    return failed


@pytest.mark.parametrize("error", TEMPORARY, ids=lambda error: type(error).__name__)
def test_what_may_pass_is_temporary_also_as_a_cause(error: BaseException) -> None:
    assert is_temporary(error)
    assert is_temporary(caused(error))


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_what_does_not_pass_by_itself_is_not(error: BaseException) -> None:
    assert not is_temporary(error)
    assert not is_temporary(caused(error))


def test_a_refused_login_behind_a_failed_bootstrap_is_not_temporary() -> None:
    error = BootstrapError("no server")
    error.__cause__ = AuthenticationError("password")
    assert not is_temporary(error)
