"""What a tracing agent has put around an original's class, put around this engine's.

Agents start before a program's first line, so before install(). They replace the class by one of their own that is
derived from it, or some of its methods by wrapt's function wrappers. Both are made again here with this engine's class
in the original's place; the agent's own functions stay what they are.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

_OF_EACH_CLASS = ("__dict__", "__weakref__")


def carried_over(theirs: type, name: str, ours: type) -> type:
    """Return `ours` within what surrounds an original's class; `ours` itself if nothing does.

    Args:
        theirs: The class that programs find: the original's, or one that is derived from it.
        name: The original's name.
        ours: This engine's class of that name.

    Raises:
        Exception: What surrounds the original cannot be put around another class.
    """
    original = next((found for found in reversed(theirs.__mro__) if found.__name__ == name), theirs)
    return _Move(original, ours).of_class(theirs)


class _Move:
    """From an original's class to this engine's."""

    def __init__(self, original: type, ours: type) -> None:
        self._original = original
        self._ours = ours

    def of_class(self, theirs: type) -> type:
        if theirs is self._original:
            return self._with_wrapped_methods()
        if not issubclass(theirs, self._original):
            return theirs  # mixed in by the agent
        cell = types.CellType()
        body = {name: self._of_value(name, value, cell) for name, value in vars(theirs).items()}
        made = type(self._ours)(
            theirs.__name__,
            tuple(self.of_class(base) for base in theirs.__bases__),
            {name: value for name, value in body.items() if name not in _OF_EACH_CLASS},
        )
        cell.cell_contents = made
        return made

    def _with_wrapped_methods(self) -> type:
        wrapped = {name: value for name, value in vars(self._original).items() if _is_wrapper(value)}
        if not wrapped:
            return self._ours
        body = {name: self._of_value(name, value, None) for name, value in wrapped.items()}
        about = {"__module__": self._ours.__module__, "__doc__": self._ours.__doc__}
        return type(self._ours)(self._ours.__name__, (self._ours,), {**about, **body})

    def _of_value(self, name: str, value: Any, cell: types.CellType | None) -> Any:
        """Return what a class has under a name, as the new one needs it. `cell`: the new class, for super()."""
        if _is_wrapper(value):
            return type(value)(self._of_value(name, value.__wrapped__, cell), value._self_wrapper)
        if cell is None or any(value is _unwrapped(vars(found).get(name)) for found in self._original.__mro__):
            return inspect.getattr_static(self._ours, name)
        return _with_class(value, cell) if isinstance(value, types.FunctionType) else value


def _is_wrapper(value: Any) -> bool:
    """Whether a value of a class's namespace is a function wrapper of wrapt, or of a copy that an agent brings."""
    return hasattr(type(value), "__wrapped__") and hasattr(value, "_self_wrapper")


def _unwrapped(value: Any) -> Any:
    while _is_wrapper(value):
        value = value.__wrapped__
    return value


def _with_class(function: types.FunctionType, cell: types.CellType) -> types.FunctionType:
    """Return a function whose super() means another class."""
    names = function.__code__.co_freevars
    if "__class__" not in names:
        return function
    cells = [cell if name == "__class__" else old for name, old in zip(names, function.__closure__ or (), strict=True)]
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    del made.__wrapped__  # type: ignore[attr-defined]
    return made
