"""kafka-python's `kafka.future`: a value that comes later, with callbacks."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Self

from kafkaprod.errors import copy_to_raise
from kafkaprod.locks import locked

logger = logging.getLogger(__name__)

_Callbacks = tuple[Callable[[Any], object] | None, Callable[[Any], object] | None]


class Future:
    """A value or an error that comes later. Thread-safe.

    Attributes:
        is_done: Whether it is there.
        value: The value; None before, and if there is an error.
        exception: The error; None before, and if there is none.
        error_on_callbacks: Whether callbacks that raise end `success` and `failure`; else they are logged.
    """

    error_on_callbacks = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._callbacks: list[_Callbacks] = []
        self._is_done = False
        self._value: Any = None
        self._exception: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def value(self) -> Any:
        return self._value

    @property
    def exception(self) -> BaseException | None:
        return self._exception

    def succeeded(self) -> bool:
        """Whether the value is there."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Whether there is an error."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Whether there is an error after which the same call may succeed."""
        return self.is_done and bool(getattr(self.exception, "retriable", False))

    def success(self, value: Any) -> Self:
        """Set the value and run the callbacks."""
        return self._end(value, None)

    def failure(self, e: BaseException | type[BaseException]) -> Self:
        """Set the error and run the errbacks."""
        error = e() if isinstance(e, type) else e
        if not isinstance(error, BaseException):
            raise TypeError("future failed without an exception")
        return self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> Self:
        for pair in self._take_outcome(value, error):
            self._run(*pair)
        return self

    @locked
    def _take_outcome(self, value: Any, error: BaseException | None) -> list[_Callbacks]:
        self._value, self._exception, self._is_done = value, error, True
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def _run(self, callback: Callable[[Any], object] | None, errback: Callable[[Any], object] | None) -> None:
        """Run whichever of the two fits the outcome."""
        error = self.exception
        function, argument = (callback, self.value) if error is None else (errback, error)
        if function is None:
            return
        try:
            function(argument)
        except Exception:
            logger.exception("a callback of a future raised")
            if self.error_on_callbacks:
                raise

    def _watch(self, callback: Callable[[Any], object] | None, errback: Callable[[Any], object] | None) -> Self:
        if not self._keep(callback, errback):
            self._run(callback, errback)
        return self

    @locked
    def _keep(self, callback: Callable[[Any], object] | None, errback: Callable[[Any], object] | None) -> bool:
        """Keep callbacks for the outcome; return False if it is there."""
        if not self._is_done:
            self._callbacks.append((callback, errback))
        return not self._is_done

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f(*args, value, **kwargs)` when the value is there, or now if it is."""
        return self._watch(functools.partial(f, *args, **kwargs) if args or kwargs else f, None)

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f(*args, error, **kwargs)` if there is an error."""
        return self._watch(None, functools.partial(f, *args, **kwargs) if args or kwargs else f)

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f` with the value or the error."""
        function = functools.partial(f, *args, **kwargs) if args or kwargs else f
        return self._watch(function, function)

    def __await__(self) -> Generator[Self, None, Any]:
        if not self.is_done:
            yield self
        if self.exception is not None:
            raise copy_to_raise(self.exception)
        return self.value

    def chain(self, future: Future) -> Self:
        """Pass the outcome on to another future."""
        return self._watch(future.success, future.failure)
