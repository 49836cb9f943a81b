"""ChangeSettings (10002): a broker has the embedded cluster's controller write options, ACLs, quotas or credentials.

Not part of Kafka, where brokers forward the client's request; it goes over the cluster's internal sockets only.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT64, array
from kafkaprod.protocol.schema import Request, Response, field
from kafkaprod.structs import BytesLike


class ChangeSettingsRequest(Request, api=ApiKey.CHANGE_SETTINGS, versions=(0, 0), flexible_from=0):
    """Records that take effect together; each as in Kafka's metadata log."""

    records: list[BytesLike] = field(array(BYTES))


class ChangeSettingsResponse(Response, api=ApiKey.CHANGE_SETTINGS, versions=(0, 0), flexible_from=0):
    """The end of the metadata log with which the change can be seen."""

    error_code: int = field(INT16)
    end_offset: int = field(INT64)
