"""What clients have set: options, quotas, SCRAM credentials and ACLs are records of the metadata log.

A broker sends the records of a change to the controller, and waits until its own metadata shows them, for a second at
most. So a change outlives any broker and is seen by all of them. In a cluster the event loop follows the image, of a
broker alone the control thread; the control thread makes changes.
"""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import AclFields, ClusterImage, QuotaEntity
from kafkaprod.broker.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    encode,
)
from kafkaprod.broker.settings.scram_store import MECHANISMS
from kafkaprod.broker.settings.settings import (
    ACLS,
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    METRICS_OPTIONS,
    QUOTAS,
    SCRAM,
    Settings,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.change_settings import ChangeSettingsRequest, ChangeSettingsResponse
from kafkaprod.protocol.schema import Request, Response, Struct
from kafkaprod.structs import BytesLike

_VISIBLE_S: Final = 1.0
_RESOURCE_TYPES: Final[Mapping[str, int]] = {BROKER_OPTIONS: 4, METRICS_OPTIONS: 16, GROUP_OPTIONS: 32}
_MECHANISM_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
_SCRAM_FIELDS: Final = ("salt", "stored_key", "server_key")


class ReplicatedSettings(Settings):
    """See the module docstring.

    Attributes:
        ask_controller: Sends a request to the controller and returns its answer, or None if it gives none. It waits, so
            the event loop must not call it.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.ask_controller: Callable[[Request], Response | None] = lambda _: None
        self._acl_ids: Mapping[AclFields, uuid.UUID] = {}
        self._seen_offset = 0  # of the metadata log, below which the sections show all
        self._settings_offset = 0
        self._has_moved = threading.Condition()

    def follow(self, image: ClusterImage) -> bool:
        """Take over what the metadata says; return whether a setting has changed."""
        has_changed = image.settings_offset != self._settings_offset
        with self._has_moved:
            if has_changed:
                self._settings_offset = image.settings_offset
                self._acl_ids = {fields: acl_id for acl_id, fields in image.acls.items()}
                self._sections = _sections(image)
            self._seen_offset = image.end_offset
            self._has_moved.notify_all()
        return has_changed

    def put(self, section: str, content: Any) -> None:
        """Have the controller write what has changed in a section; wait until the metadata shows it.

        The wait is a second at most.

        Raises:
            RequestRefusedError: REQUEST_TIMED_OUT, the controller does not answer; or its error.
        """
        records = changes(section, self.get(section), content, self._acl_ids)
        if not records:
            return
        response = self.ask_controller(ChangeSettingsRequest(records=records))
        if not isinstance(response, ChangeSettingsResponse):
            raise RequestRefusedError(ErrorCode.REQUEST_TIMED_OUT, "The controller does not answer.")
        if response.error_code:
            raise RequestRefusedError(error_of(response.error_code), "The controller refuses the change.")
        deadline = time.monotonic() + _VISIBLE_S
        with self._has_moved:
            while self._seen_offset < response.end_offset and (left_s := deadline - time.monotonic()) > 0:
                self._has_moved.wait(left_s)


def changes(section: str, before: Any, after: Any, acl_ids: Mapping[AclFields, uuid.UUID]) -> list[BytesLike]:
    """Return the records that turn one content of a section into another, encoded.

    Args:
        section: One of `settings`.
        before: What it holds.
        after: What it shall hold.
        acl_ids: The ids of the ACLs before.
    """
    if section in _RESOURCE_TYPES:
        records = _option_changes(_RESOURCE_TYPES[section], before, after)
    elif section == QUOTAS:
        records = _quota_changes(before, after)
    elif section == SCRAM:
        records = _scram_changes(before, after)
    else:
        records = _acl_changes(acl_ids, after)
    return [encode(record) for record in records]


def _sections(image: ClusterImage) -> dict[str, Any]:
    """Return the settings of an image as sections."""
    sections: dict[str, Any] = {
        section: {name: options for (resource_type, name), options in image.configs.items() if resource_type == wanted}
        for section, wanted in _RESOURCE_TYPES.items()
    }
    sections[QUOTAS] = [
        {"entity": dict(entity), "values": dict(quotas)} for entity, quotas in sorted(image.quotas.items(), key=repr)
    ]
    sections[SCRAM] = {}
    for (user, mechanism), credential in image.scram.items():
        sections[SCRAM].setdefault(user, {})[MECHANISMS[mechanism]] = None if credential is None else _saved(credential)
    sections[ACLS] = list(image.acls.values())
    return sections


def _saved(credential: UserScramCredentialRecord) -> dict[str, Any]:
    secrets = {name: base64.b64encode(getattr(credential, name)).decode() for name in _SCRAM_FIELDS}
    return {**secrets, "iterations": credential.iterations}


def _option_changes(
    resource_type: int, before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Iterator[Struct]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, {}), after.get(name, {})
        if old is new:
            continue
        for option in dict.fromkeys((*old, *new)):
            if old.get(option) != new.get(option):
                yield ConfigRecord(resource_type=resource_type, resource_name=name, name=option, value=new.get(option))


def _quota_changes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Struct]:
    old_quotas, new_quotas = _by_entity(before), _by_entity(after)
    for entity in dict.fromkeys((*old_quotas, *new_quotas)):
        old, new = old_quotas.get(entity, {}), new_quotas.get(entity, {})
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) != new.get(key):
                yield ClientQuotaRecord(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    key=key,
                    value=new.get(key, 0.0),
                    remove=key not in new,
                )


def _by_entity(entries: Sequence[Mapping[str, Any]]) -> dict[QuotaEntity, Mapping[str, float]]:
    return {tuple(sorted(entry["entity"].items())): entry["values"] for entry in entries}


def _scram_changes(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Iterator[Struct]:
    for user, mechanisms in after.items():
        for mechanism, saved in mechanisms.items():
            known = before.get(user, {})
            if mechanism in known and known[mechanism] == saved:
                continue
            number = _MECHANISM_NUMBERS[mechanism]
            if saved is None:
                yield RemoveUserScramCredentialRecord(name=user, mechanism=number)
                continue
            salt, stored_key, server_key = (base64.b64decode(saved[name]) for name in _SCRAM_FIELDS)
            yield UserScramCredentialRecord(
                name=user,
                mechanism=number,
                salt=salt,
                stored_key=stored_key,
                server_key=server_key,
                iterations=saved["iterations"],
            )


def _acl_changes(known: Mapping[AclFields, uuid.UUID], after: Sequence[Sequence[Any]]) -> Iterator[Struct]:
    wanted: list[AclFields] = [tuple(fields) for fields in after]  # those of an Acl
    kept = set(wanted)
    for fields, acl_id in known.items():
        if fields not in kept:
            yield RemoveAccessControlEntryRecord(id=acl_id)
    for fields in wanted:
        if fields in known:
            continue
        resource_type, name, pattern_type, principal, host, operation, permission = fields
        yield AccessControlEntryRecord(
            id=uuid.uuid4(),
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
