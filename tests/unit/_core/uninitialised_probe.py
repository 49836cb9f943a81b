"""Call every member of every compiled class on objects that no constructor has prepared. Run by test_uninitialised.

    python uninitialised_probe.py bare|subclass|twice

Each call is printed before it is made, so the last line of a crashed run names the member.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kafkaprod

ROOT = Path(kafkaprod.__file__).parent
SUFFIXES = (".so", ".pyd")
ARGUMENTS: list[tuple[Any, ...]] = [
    (),
    (0,),
    (b"x",),
    ("t",),
    (None,),
    (len,),
    ([0],),
    (0, 0),
    ("t", b"v"),
    ("t", 0),
    (0, 5),
    (b"x", 1),
    (0, 0, 0),
    ("t", 0, 0),
    (0, 0, 0, 0, 0),
]
OPERATIONS = [
    repr,
    str,
    hash,
    len,
    iter,
    next,
    memoryview,
    bool,
    bytes,
    dir,
    lambda x: x[0],
    lambda x: x == x,
    operator.index,
]
NEVER_END = [("Waiter.wait", ()), ("Waiter.wait", (None,))]  # a new Waiter is whole, and waits


def compiled_modules() -> Iterator[ModuleType]:
    """Import every extension module of the package."""
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in SUFFIXES:
            relative = path.relative_to(ROOT.parent)
            yield importlib.import_module(".".join([*relative.parent.parts, path.name.split(".")[0]]))


def compiled_classes() -> Iterator[type]:
    """Return the classes that the extension modules define, and Producer, which extends one."""
    for module in compiled_modules():
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == module.__name__ and not issubclass(cls, BaseException):
                yield cls
    yield kafkaprod.Producer
    yield kafkaprod.AsyncProducer


def make(cls: type, kind: str) -> Any:
    """Return an object whose constructor did not run, or None if there can be none."""
    try:
        if kind == "subclass":
            return type("Mine", (cls,), {"__init__": lambda self: None})()
        return object.__getattribute__(cls, "__new__")(cls)
    except (TypeError, kafkaprod.errors.KafkaError) as error:
        print(f"{cls.__name__}: refused: {error}")
        return None


def attempt(what: str, call: Any) -> None:
    """Make one call; whatever it raises is fine but SystemError, which says that C code broke a rule."""
    print(what, flush=True)
    try:
        call()
    except SystemError:
        raise
    except Exception as error:
        print("   ", type(error).__name__, error)


def main() -> None:
    """Call all members and print how many calls were made."""
    kind = sys.argv[1]
    calls = 0
    for cls in list(compiled_classes()):
        thing = make(cls, kind)
        if thing is None:
            continue
        if kind == "twice":
            for arguments in ARGUMENTS:
                attempt(f"{cls.__name__}.__init__{arguments!r}", lambda a=arguments, t=thing: t.__init__(*a))
        if kind == "subclass":
            for name in sorted(set(dir(cls)) - set(dir(object))):
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(thing, name, getattr(thing, name) if callable(getattr(cls, name)) else False)
        for operation in OPERATIONS:
            attempt(f"{operation} of {cls.__name__}", lambda o=operation, t=thing: o(t))
            calls += 1
        for name in sorted(set(dir(cls)) - set(dir(object))):
            try:
                print(f"{cls.__name__}.{name}", flush=True)
                member = getattr(thing, name)
            except SystemError:
                raise
            except Exception as error:
                print("   ", type(error).__name__, error)
                continue
            for arguments in ARGUMENTS if callable(member) else ():
                if (f"{cls.__name__}.{name}", arguments) in NEVER_END:
                    continue
                attempt(f"{cls.__name__}.{name}{arguments!r}", lambda m=member, a=arguments: m(*a))
            calls += 1
        del thing
    print(calls, "members called")


if __name__ == "__main__":
    main()
