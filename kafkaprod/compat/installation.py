"""This engine's producers in place of the originals': `install("confluent_kafka")` and `uninstall("confluent_kafka")`.

Classes are put into the modules of the original package, where frameworks and programs take them from. All else of the
package stays what it is: consumers, admin clients, the schema registry.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from typing import Any, Final, Literal, NamedTuple

from kafkaprod.compat.agents import carried_over
from kafkaprod.compat.originals import module_of
from kafkaprod.locks import locked
from kafkaprod.text import printable

Client = Literal["aiokafka", "confluent_kafka", "kafka_python"]
logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    """A class, and the original's modules that have it."""

    name: str
    ours: str
    modules: tuple[str, ...]


_HERE: Final = "kafkaprod.compat"
_PACKAGES: Final = {"aiokafka": "aiokafka", "confluent_kafka": "confluent_kafka", "kafka_python": "kafka"}
_PLACES: Final = {
    "aiokafka": (
        _Place(
            "AIOKafkaProducer",
            f"{_HERE}.aiokafka",
            ("aiokafka", "aiokafka.producer", "aiokafka.producer.producer"),
        ),
    ),
    "confluent_kafka": (
        _Place("Producer", f"{_HERE}.confluent_kafka", ("confluent_kafka", "confluent_kafka.cimpl")),
        _Place(
            "SerializingProducer",
            f"{_HERE}.confluent_kafka",
            ("confluent_kafka", "confluent_kafka.serializing_producer"),
        ),
        _Place(
            "AIOProducer",
            f"{_HERE}.confluent_kafka.aio",
            ("confluent_kafka.aio", "confluent_kafka.aio.producer", "confluent_kafka.aio.producer._AIOProducer"),
        ),
    ),
    "kafka_python": (
        _Place("KafkaProducer", f"{_HERE}.kafka_python", ("kafka", "kafka.producer", "kafka.producer.kafka")),
    ),
}


class _Swap(NamedTuple):
    """A class that was put into a module, and what was there."""

    module: Any
    name: str
    ours: type
    theirs: type


class _Installed:
    """The classes that are in place, by client."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._swaps: dict[str, list[_Swap]] = {}  # guarded by _lock

    @locked
    def install(self, client: str) -> list[str]:
        """Put the classes of a client in place, once."""
        if client not in self._swaps:
            package = importlib.import_module(_PACKAGES[client])
            swaps = [swap for place in _PLACES[client] for swap in _swaps_of(place)]
            version = getattr(package, "__version__", "")
            if not swaps:
                raise ImportError(_nothing_found(client, version))
            self._swaps[client] = swaps
            for swap in swaps:
                setattr(swap.module, swap.name, swap.ours)
            logger.info("%s: in place are %s", printable(f"{client} {version}"), printable(", ".join(_names(swaps))))
            _warn_of_early_users(package.__name__, {swap.theirs for swap in swaps})
        return _names(self._swaps[client])

    @locked
    def uninstall(self, client: str) -> list[str]:
        """Put back what is still ours."""
        back = [swap for swap in self._swaps.pop(client, []) if getattr(swap.module, swap.name, None) is swap.ours]
        for swap in back:
            setattr(swap.module, swap.name, swap.theirs)
        return _names(back)


_installed: Final = _Installed()


def install(client: Client) -> list[str]:
    """Put this engine's producer into an installed client, for all that import it from now on.

    Call it before frameworks are imported: modules that took the original's class before keep it, and the log names
    them. What was changed is also in the log, at INFO. Does nothing if it was called before. Thread-safe; for this
    process only.

    Args:
        client: "confluent_kafka", "kafka_python" or "aiokafka".

    Returns:
        The names that are this engine's now, such as "confluent_kafka.Producer".

    Raises:
        ImportError: The client is not installed, or this version of it has no producer where others have it.
        ValueError: There is no interface of such a client.
    """
    _check(client)
    return _installed.install(client)


def uninstall(client: Client) -> list[str]:
    """Put the original's classes back, but for a name that has been given another class meanwhile. Thread-safe.

    Producers that exist stay as they are. Instrumentation that wrapped methods of this engine's classes stays on them:
    remove it before.

    Args:
        client: As for `install`.

    Returns:
        The names that are the original's again; none if nothing was installed.

    Raises:
        ValueError: There is no interface of such a client.
    """
    _check(client)
    return _installed.uninstall(client)


def _check(client: str) -> None:
    if client not in _PLACES:
        raise ValueError(f"no interface of a client {client!r}: it is one of {', '.join(sorted(_PLACES))}")


def _swaps_of(place: _Place) -> list[_Swap]:
    """Return what changes; a module or a class that this version of the original lacks is left out."""
    found = [(module, getattr(module, place.name, None)) for module in map(module_of, place.modules)]
    if not any(isinstance(theirs, type) for _, theirs in found):
        return []
    ours = getattr(importlib.import_module(place.ours), place.name)
    within = {theirs: _within_agents(theirs, place.name, ours) for _, theirs in found if isinstance(theirs, type)}
    return [_Swap(module, place.name, within[theirs], theirs) for module, theirs in found if isinstance(theirs, type)]


def _within_agents(theirs: type, name: str, ours: type) -> type:
    try:
        return carried_over(theirs, name, ours)
    except Exception as error:
        logger.warning(
            "%s.%s, which another package has put in place of the original's producer, cannot be put around this "
            "engine's (%r): what it records of the original it does not record of this one. Let it start after "
            "install(), or report this",
            printable(theirs.__module__),
            printable(theirs.__name__),
            error,
        )
        return ours


def _nothing_found(client: str, version: str) -> str:
    places = "; ".join(f"{place.name} in {', '.join(place.modules)}" for place in _PLACES[client])
    return (
        f"{_PACKAGES[client]} {version} has no producer to put this engine's in place of; looked for {places}. Import "
        f"{_HERE}.{client} instead, or install a version that has it"
    )


def _names(swaps: list[_Swap]) -> list[str]:
    return [f"{swap.module.__name__}.{swap.name}" for swap in swaps]


def _warn_of_early_users(package: str, theirs: set[type]) -> None:
    """Name modules that have the original's class under a name of their own: they were imported too early.

    Not those of agents, whose classes stand around this engine's now.
    """
    users = []
    agents = {found.__module__ for found in theirs}
    for name, module in sys.modules.copy().items():
        is_original = name == package or name.startswith((f"{package}.", "kafkaprod.")) or name in agents
        values = () if is_original or module is None else tuple(getattr(module, "__dict__", {}).values())
        if any(
            isinstance(value, type) and (value in theirs or not theirs.isdisjoint(value.__mro__)) for value in values
        ):
            users.append(name)
    if users:
        logger.warning(
            "these modules have taken the original's producer before and keep it: %s; install before they are imported",
            printable(", ".join(sorted(users))),
        )
