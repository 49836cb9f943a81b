"""Slices of the metadata log as requests between processes of a cluster."""

from __future__ import annotations

import uuid

import pytest

from kafkaprod.broker.controller import wire
from kafkaprod.broker.metadata.follower import MetadataSlice
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import NoOpRecord, TopicRecord
from kafkaprod.structs import BytesLike

FIRST = MetadataBatch(0, 1, (NoOpRecord(), TopicRecord(name="t", topic_id=uuid.UUID(int=7))))
SECOND = MetadataBatch(2, 1, (NoOpRecord(),))


def test_a_slice_arrives_as_it_was_sent() -> None:
    sent = MetadataSlice(1, 5, 0, -1, 3, (FIRST, SECOND))
    assert wire.slice_of(wire.slice_request(sent, {})) == sent


def test_a_batch_is_encoded_once_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: dict[tuple[int, int], list[BytesLike]] = {}
    first = wire.slice_request(MetadataSlice(1, 5, 0, -1, 2, (FIRST,)), encoded)
    monkeypatch.setattr(wire, "encode", lambda _: pytest.fail("the records were encoded again"))
    assert wire.slice_request(MetadataSlice(1, 6, 0, -1, 2, (FIRST,)), encoded).batches == first.batches
