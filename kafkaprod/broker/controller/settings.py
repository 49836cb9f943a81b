"""Options of brokers and groups, access control entries, quotas and credentials. Handlers are pure."""

from __future__ import annotations

from typing import Final

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.events import Decision
from kafkaprod.broker.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.change_settings import ChangeSettingsRequest, ChangeSettingsResponse
from kafkaprod.protocol.schema import Struct

SETTINGS_RECORDS: Final = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


def change(context: ControllerContext, request: ChangeSettingsRequest, now_ms: int) -> Decision:
    """Write what a broker has checked, but no access control entry twice, and no removal of one that is gone.

    Two brokers may have been given the same change, each before it knew of the other's. Refused:
    INVALID_REQUEST, other records.
    """
    known = set(context.image.acls.values())
    records: list[Struct] = []
    for record in (decode(bytes(each)) for each in request.records):
        if not isinstance(record, SETTINGS_RECORDS):
            return Decision([], ChangeSettingsResponse(error_code=ErrorCode.INVALID_REQUEST))
        if isinstance(record, AccessControlEntryRecord):
            fields = (
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            )
            if fields in known:
                continue
            known.add(fields)
        elif isinstance(record, RemoveAccessControlEntryRecord) and record.id not in context.image.acls:
            continue
        records.append(record)
    return Decision(records, ChangeSettingsResponse(end_offset=context.image.end_offset + len(records)))
