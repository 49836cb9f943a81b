"""The files in which a broker alone kept its metadata before it had a log for it: read once, written down, removed.

    topics.json          {"version": 0, "topics": {name: {"id", "partitions", "properties"}}}
    settings.json        {"version": 0, "sections": {section of `settings`: its content}}
    producer-id-block    the first id that is not reserved yet, as a decimal number

A crash on the way leaves the files: what they say is written down again, which changes nothing.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from typing import Any

from kafkaprod.broker.cluster.own_controller import OwnController
from kafkaprod.broker.settings.replicated_settings import changes
from kafkaprod.broker.settings.settings import EMPTY, Settings
from kafkaprod.broker.storage.recovery.checkpoints import decode_uuid
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.disk import Disk, read_file

logger = logging.getLogger(__name__)

TOPICS_FILE = "topics.json"
SETTINGS_FILE = "settings.json"
PRODUCER_IDS_FILE = "producer-id-block"


def take_over(directory: str, disk: Disk, controller: OwnController, settings: Settings) -> None:
    """Have the controller write down what the files of a data directory say, and remove them.

    Raises:
        CorruptDataError: A file is damaged; nothing was changed.
        BrokerError: KAFKA_STORAGE_ERROR, the disk refused.
        OSError: The same.
    """
    paths = [os.path.join(directory, name) for name in (TOPICS_FILE, SETTINGS_FILE, PRODUCER_IDS_FILE)]
    found = [path for path in paths if os.path.exists(path)]
    if not found:
        return
    topics, sections, next_id = _read_topics(paths[0]), _read_settings(paths[1]), _read_next_id(paths[2])
    for name, entry in topics.items():
        if name not in controller.image.topic_ids:
            controller.add_topic(name, decode_uuid(entry["id"]), entry["partitions"], entry["properties"])
    for section, content in sections.items():
        settings.put(section, content)
    if next_id > controller.image.next_producer_id:
        controller.producer_ids(next_id)
    controller.sync()
    for path in found:
        disk.unlink(path)
    disk.sync_dir(directory)
    logger.info("%r: %d topics and the settings are in the metadata log now", directory, len(topics))


def name_unused(directory: str) -> None:
    """Warn of settings in a directory that a broker of a cluster uses now."""
    file = os.path.join(directory, SETTINGS_FILE)
    if os.path.exists(file):
        logger.warning("%r is not used: options, ACLs and users of a cluster are in its metadata log", file)


def _read_topics(path: str) -> dict[str, Any]:
    try:
        topics = json.loads(read_file(path))["topics"]
        for entry in topics.values():
            decode_uuid(entry["id"]), dict(entry["properties"])
            if type(entry["partitions"]) is not int:
                raise TypeError("a count of partitions is not a number")
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"{path} is damaged: {error!r}") from error
    return dict(topics)


def _read_settings(path: str) -> dict[str, Any]:
    try:
        sections = json.loads(read_file(path))["sections"]
        for name, content in sections.items():
            if type(content) is not type(EMPTY[name]):
                raise TypeError(name)
            changes(name, EMPTY[name], content, {})
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise CorruptDataError(f"{path} is damaged: {error!r}") from error
    return dict(sections)


def _read_next_id(path: str) -> int:
    try:
        content = read_file(path)[:64].strip()
    except FileNotFoundError:
        return 0
    if not content.isdigit():
        raise CorruptDataError(f"{path} holds {content!r}, not a producer id")
    return int(content)
