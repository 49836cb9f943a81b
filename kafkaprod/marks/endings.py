"""How a try ends: the result of a write, and the errors that say what is known of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kafkaprod.errors import (
    AuthorizationError,
    KafkaError,
    ProducerFencedError,
    WriteTakenOverError,
    WriteUnknownError,
)
from kafkaprod.marks.mark import Mark
from kafkaprod.marks.place import DEFAULT_PREFIX
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.results.write import WriteResult

_RIGHTS: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)


def result_of(mark: Mark, *, already_written: bool) -> WriteResult:
    """Return the result of a write by its mark."""
    facts = mark.rows, mark.written_ms, mark.written_by, mark.digest, mark.parts
    return WriteResult(mark.write_id, already_written, *facts)


def unsure(error: BaseException, write_id: str, last: Mark | None, wait_s: float) -> KafkaError:
    """Return the error of a try that found no mark behind one of its own.

    Args:
        error: That of its own.
        write_id, last, wait_s: As for `taken_over`.
    """
    if getattr(error, "outcome", None) == "unknown":
        return WriteUnknownError(
            f"it is not known whether write {write_id!r} is committed: {error}. Run it again with the same write_id: "
            "then it will be",
            write_id=write_id,
        )
    return taken_over(write_id, last, wait_s)


def taken_over(write_id: str, last: Mark | None, wait_s: float) -> WriteTakenOverError:
    """Return the error of a try that a later one has fenced.

    Args:
        write_id: The id of the write.
        last: The mark of its last part that is committed; None: there is none.
        wait_s: How long it waited for the mark of the later try.
    """
    wrote = "nothing" if last is None else f"no row behind the {last.rows} that are committed"
    return WriteTakenOverError(
        f"another try of write {write_id!r} took over, and has not committed within {wait_s:g} s. This one wrote "
        f"{wrote}: the rows are written by that try, or by the next one",
        write_id=write_id,
    )


def is_fenced(error: BaseException) -> bool:
    """Whether a later try took over, or the transaction was open for too long: an abort proves nothing then.

    INVALID_TXN_STATE is what a commit is answered that comes behind the abort of the later try (KIP-890): for one epoch
    the coordinator takes it for a repetition.
    """
    return _has(error, ProducerFencedError, _FENCED)


def is_of_rights(error: BaseException) -> bool:
    """Whether a right is missing."""
    return _has(error, AuthorizationError, _RIGHTS)


def name_rights(error: BaseException, name: str) -> None:
    """Note in an error all rights that a write needs.

    Args:
        error: The error.
        name: The name of the group and of the transactional id.
    """
    error.add_note(
        f"write_id needs Write on transactional id {name!r}, and Read on group {name!r} and on the topic of the rows; "
        f"allow them for names that begin with {DEFAULT_PREFIX!r}"
    )


def _has(error: BaseException | None, kind: type[BaseException], codes: Collection[int]) -> bool:
    """Whether an error or one of its causes is of a kind, or has one of the codes of the brokers."""
    while error is not None:
        if isinstance(error, kind) or getattr(error, "code", None) in codes:
            return True
        error = error.__cause__
    return False
