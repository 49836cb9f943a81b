"""Which of the options at hand Spark would show: what its settings of redaction do not hide.

Options in SQL are part of a plan, which Spark's event log, web interface and history server show.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkaprod.admin.checkup import Finding, Level
from kafkaprod.config import OPTIONS, read_properties
from kafkaprod.config.kinds import SecretText
from kafkaprod.errors import ConfigError

ADVISED: Final = (
    "(?i)secret|password|token|access[.]?key|key[.]pem|keystore[.]key|passphrase|oauthbearer[.]config|user[.]info|jaas"
)
"""For `spark.redaction.regex`: Spark's own, and the names of all other secrets."""
_USUAL: Final = {
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key",
    "spark.sql.redaction.options.regex": "(?i)url",
}
_PUBLIC: Final = frozenset(("ssl_ca_pem", "ssl_certificate_pem"))
_PLACES: Final = ("env:", "file:")


def secret_names() -> Iterator[str]:
    """Yield the names with dots of all options whose value is a secret."""
    for option in OPTIONS.values():
        if isinstance(option.kind, SecretText) and option.name not in _PUBLIC:
            yield from (option.dotted_name, *option.aliases)
    yield from ("sasl.jaas.config", "schema.registry.basic.auth.user.info", "schema.registry.bearer.auth.token")


def read_redaction() -> list[str]:
    """Return the patterns by which a session on this machine hides options.

    Raises:
        ConfigError: The file of Spark's settings cannot be read.
    """
    path = _settings_file()
    given = read_properties(path) if path is not None else {}
    return [given.get(name, usual) for name, usual in _USUAL.items()]


def _settings_file() -> Path | None:
    directories = []
    if directory := os.environ.get("SPARK_CONF_DIR"):
        directories.append(Path(directory))
    elif home := os.environ.get("SPARK_HOME"):
        directories.append(Path(home, "conf"))
    elif (package := importlib.util.find_spec("pyspark")) is not None and package.origin is not None:
        directories.append(Path(package.origin).parent / "conf")
    files = [directory / "spark-defaults.conf" for directory in directories]
    return next((file for file in files if file.is_file()), None)


def examine_redaction(options: Mapping[str, str], patterns: list[str]) -> list[Finding]:
    """Return a warning if options that are given would be shown. Pure.

    Args:
        options: As they are spelled, without the prefix `kafka.`.
        patterns: What `read_redaction` returned.
    """
    try:
        hidden = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        text = f"Spark's pattern {error.pattern!r} is not understood here: {error}"
        return [Finding(Level.WARNING, "secrets", text, "see that it hides the names of private keys and of logins")]
    secrets = set(secret_names())
    shown = []
    for spelling, value in options.items():
        name = spelling.replace("_", ".")
        full_name = name if name.startswith("schema.registry.") else f"kafka.{name}"
        if name in secrets and not value.startswith(_PLACES) and not any(each.search(full_name) for each in hidden):
            shown.append(full_name)
    if not shown:
        return []
    text = f"as options in SQL, Spark's event log, UI and history server show {', '.join(sorted(shown))}"
    return [
        Finding(Level.WARNING, "secrets", text, f"give env:NAME or file:PATH, or set spark.redaction.regex={ADVISED}")
    ]


def look_at_redaction(options: Mapping[str, str]) -> list[Finding]:
    """Return what `examine_redaction` finds with the settings of this machine."""
    try:
        patterns = read_redaction()
    except ConfigError as error:
        return [Finding(Level.WARNING, "secrets", f"Spark's settings are not understood: {error}", "correct the file")]
    return examine_redaction(options, patterns)
