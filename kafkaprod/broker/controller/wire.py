"""Slices of the metadata log as requests, and their answers; numbers that both sides know. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.metadata.features import SUPPORTED
from kafkaprod.broker.metadata.follower import MetadataSlice, SliceAnswer, SnapshotPart
from kafkaprod.broker.metadata.log import NO_EPOCH, MetadataBatch
from kafkaprod.broker.metadata.records import decode, encode
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.broker_registration import Feature, Listener
from kafkaprod.protocol.messages.replicate_metadata import (
    MetadataBatchData,
    ReplicateMetadataRequest,
    ReplicateMetadataResponse,
)
from kafkaprod.structs import BytesLike

EncodedBatches = dict[tuple[int, int], list[BytesLike]]
"""The records of batches as bytes: by the end offset of the snapshot that they are of, OF_LOG; and base offset."""

OF_LOG: Final = -1

_NO_PART = SnapshotPart(OF_LOG, NO_EPOCH, 0, 0)
_ERRORS = {int(code): code for code in ErrorCode}
_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def supported_features() -> list[Feature]:
    """Return the levels of features that this build has, as brokers name them."""
    return [
        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in SUPPORTED.items()
    ]


def listeners_of(endpoints: Mapping[str, Endpoint], protocols: Mapping[str, str]) -> list[Listener]:
    """Return where clients reach a broker, as it names this; by the listener's name."""
    return [
        Listener(name=name, host=place.host, port=place.port, security_protocol=_SECURITY_PROTOCOLS[protocols[name]])
        for name, place in endpoints.items()
    ]


def error_of(code: int) -> ErrorCode:
    """Return the error of a code in a response; UNKNOWN_SERVER_ERROR for one that is not known."""
    return _ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def slice_request(sent: MetadataSlice, encoded: EncodedBatches) -> ReplicateMetadataRequest:
    """Return the request that carries a slice.

    Args:
        sent: The slice.
        encoded: The records of batches sent before; those of others are added. Each batch goes to every broker, and all
            of them to one that starts.
    """
    part = sent.part or _NO_PART
    for batch in sent.batches:
        if (part.end_offset, batch.base_offset) not in encoded:
            encoded[part.end_offset, batch.base_offset] = [*map(encode, batch.records)]
    return ReplicateMetadataRequest(
        controller_epoch=sent.controller_epoch,
        broker_epoch=sent.broker_epoch,
        previous_offset=sent.previous_offset,
        previous_epoch=sent.previous_epoch,
        commit_offset=sent.commit_offset,
        batches=[
            MetadataBatchData(
                base_offset=batch.base_offset,
                epoch=batch.epoch,
                records=encoded[part.end_offset, batch.base_offset],
            )
            for batch in sent.batches
        ],
        snapshot_end_offset=part.end_offset,
        snapshot_epoch=part.epoch,
        snapshot_first=part.first,
        snapshot_total=part.total,
    )


def slice_of(request: ReplicateMetadataRequest) -> MetadataSlice:
    """Return the slice in a request.

    Raises:
        CorruptDataError: A record is not known.
    """
    part = SnapshotPart(
        request.snapshot_end_offset, request.snapshot_epoch, request.snapshot_first, request.snapshot_total
    )
    return MetadataSlice(
        request.controller_epoch,
        request.broker_epoch,
        request.previous_offset,
        request.previous_epoch,
        request.commit_offset,
        tuple(_batch(batch) for batch in request.batches),
        None if part == _NO_PART else part,
    )


def slice_answer(response: ReplicateMetadataResponse) -> SliceAnswer:
    """Return the answer in a response."""
    return SliceAnswer(error_of(response.error_code), response.end_offset, response.end_epoch)


def _batch(data: MetadataBatchData) -> MetadataBatch:
    return MetadataBatch(data.base_offset, data.epoch, tuple(_decoded(data.records)))


def _decoded(values: Iterable[Any]) -> Iterable[Any]:
    return (decode(bytes(value)) for value in values)
