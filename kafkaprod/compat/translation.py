"""What the modules of kafka-python and aiokafka do alike: errors become the original's, addresses a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkaprod import errors as ours

Kinds = Iterable[tuple[type[BaseException], type[Exception]]]
"""Classes of errors here and there; of several that fit, the first one counts."""


def translate(
    error: BaseException, before_codes: Kinds, for_code: Callable[[int], type[Exception]], kinds: Kinds
) -> BaseException:
    """Return what the original raises where kafkaprod raises `error`, which becomes its cause.

    Args:
        error: Errors that are neither kafkaprod's nor TimeoutError stay as they are, and so does a serializer's own.
        before_codes: Classes that count before the error code of a broker.
        for_code: Returns the original's class of a broker's error code.
        kinds: Classes of errors without a code; the last one fits every error.
    """
    if not isinstance(error, ours.KafkaError | TimeoutError):
        return error
    if isinstance(error, ours.SerializationError) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, ours.DeliveryFailedError) and isinstance(error.__cause__, ours.KafkaError):
        return translate(error.__cause__, before_codes, for_code, kinds)
    made = _class_of(error, before_codes, for_code, kinds)(str(error))
    made.__cause__ = error
    return made


def _class_of(
    error: Exception, before_codes: Kinds, for_code: Callable[[int], type[Exception]], kinds: Kinds
) -> type[Exception]:
    first = next((theirs for kind, theirs in before_codes if isinstance(error, kind)), None)
    if first is not None:
        return first
    code = ours.broker_code(error)
    if code is not None:
        return for_code(code)
    return next(theirs for kind, theirs in kinds if isinstance(error, kind))


def servers_once(servers: Any) -> list[str]:
    """Return each address of `bootstrap_servers` once, from text with commas or a list."""
    items = servers.split(",") if isinstance(servers, str) else list(servers)
    return list(dict.fromkeys(item.strip() if isinstance(item, str) else item for item in items))
