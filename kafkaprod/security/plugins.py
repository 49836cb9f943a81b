"""SASL mechanisms of other packages: entry points of the group `kafkaprod.sasl_mechanisms`, looked up by their name.

    [project.entry-points."kafkaprod.sasl_mechanisms"]
    "X-TICKET" = "mypackage.login:make_mechanisms"

The function takes the client's configuration and returns a function that makes a `security.sasl.Mechanism` for one
login. That one has no argument, or one: the host that is connected to. So a mechanism works wherever options are text:
commands, files, Spark.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from kafkaprod.errors import ConfigError
from kafkaprod.security.sasl import Mechanism, MechanismFactory

GROUP: Final = "kafkaprod.sasl_mechanisms"


def installed_mechanism(name: str, config: Any) -> MechanismFactory:
    """Return the factory of an installed package's mechanism.

    Args:
        name: In upper case.
        config: The client's configuration, which the package's function takes.

    Raises:
        ConfigError: No package has it, or its function failed.
    """
    found = {entry.name.upper(): entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise ConfigError(
            f"sasl_mechanism={name} is not one of this package, and no installed package has an entry point of that "
            f"name in {GROUP} (there: {', '.join(sorted(found)) or 'none'})"
        )
    try:
        make: Callable[..., Mechanism] = found[name].load()(config)
        takes_host = _takes_host(make)
    except Exception as error:
        raise ConfigError(
            f"sasl_mechanism={name}: {found[name].value} failed with {type(error).__name__}: {error}"
        ) from error
    return make if takes_host else lambda host: make()


def _takes_host(make: Callable[..., Mechanism]) -> bool:
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(make).parameters.values()
    return any(one.kind in given and one.default is inspect.Parameter.empty for one in parameters)
