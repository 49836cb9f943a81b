"""Opens the log directories of a broker: the first one must be usable, of the others those that are."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from kafkaprod.broker.storage.directory_health import DirectoryHealth, WatchedDisk
from kafkaprod.broker.storage.errors import DirectoryLockedError, LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.directory_files import BrokerIdentity
from kafkaprod.broker.storage.log.log_dir import KnownTopics, LogDir, open_log_dir
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.log_store import LogEnvironment
from kafkaprod.errors import ConfigError

logger = logging.getLogger(__name__)


def open_log_dirs(
    paths: Sequence[str],
    environment: LogEnvironment,
    *,
    node_id: int = 0,
    cluster_id: str | None = None,
    defaults: LogConfig | None = None,
    find_topics: Callable[[LogDir], KnownTopics] = lambda _: KnownTopics({}, {}),
) -> LogDirs:
    """Take over the log directories of a broker, making those that are missing; see `open_log_dir`.

    Args:
        paths: The directories; the first one must be usable.
        environment: Shared by all logs.
        node_id: This broker's id.
        cluster_id: Must match that of the directories.
        defaults: Options of topics without their own.
        find_topics: As of `open_log_dir`, with the first directory.

    Raises:
        DirectoryLockedError: Another broker uses one of them.
        ConfigError: One belongs to another broker, cluster or user, or every user may write to it; one is named twice.
        LogError, OSError: The first one cannot be read or written.
    """
    resolved = [os.path.realpath(path) for path in paths]
    if len(set(resolved)) < len(resolved):
        raise ConfigError(f"a log directory is named twice: {', '.join(resolved)}")
    known, reserved = KnownTopics({}, {}), []

    def find(log_dir: LogDir) -> KnownTopics:
        nonlocal known, reserved
        known = find_topics(log_dir)
        reserved = list(log_dir.partitions)
        return known

    first = open_log_dir(
        resolved[0], environment, node_id=node_id, cluster_id=cluster_id, defaults=defaults, find_topics=find
    )
    directories, unopened = [first], []
    try:
        for path in resolved[1:]:
            directory = _open_further(path, environment, first.identity, defaults, known)
            if directory is None:
                unopened.append(path)
            else:
                directories.append(directory)
        log_dirs = LogDirs(directories, unopened)
        log_dirs.settle(known.ids, reserved)
    except BaseException:
        for directory in directories:
            directory.close()
        raise
    return log_dirs


def _open_further(
    path: str, environment: LogEnvironment, identity: BrokerIdentity, defaults: LogConfig | None, known: KnownTopics
) -> LogDir | None:
    """Open a directory that is not the first one; None if that is not possible."""
    health = DirectoryHealth(path)
    try:
        return open_log_dir(
            path,
            environment._replace(disk=WatchedDisk(environment.disk, health), health=health),
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            defaults=defaults,
            find_topics=lambda _: known,
        )
    except DirectoryLockedError:
        raise
    except (OSError, LogError) as error:
        logger.error("log directory %r is offline, and the broker starts without it: %s", path, str(error))
        return None
