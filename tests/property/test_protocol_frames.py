"""The same frames and events come out wherever a byte stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.frames import FrameSplitter, encode_request
from kafkaprod.protocol.messages import version_ranges
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkaprod.protocol.server import ConnectionRefused, RequestReceived, ServerConnection

VERSIONS = version_ranges(ApiKey)


@st.composite
def cut(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]


@given(data=st.data(), contents=st.lists(st.binary(max_size=300), max_size=8))
def test_frames_do_not_depend_on_the_cuts(data: st.DataObject, contents: list[bytes]) -> None:
    stream = b"".join(len(content).to_bytes(4, "big") + content for content in contents)
    splitter = FrameSplitter(max_frame_bytes=300)

    frames = [bytes(frame) for piece in data.draw(cut(stream)) for frame in splitter.feed(piece)]

    assert frames == contents
    assert splitter.incomplete_bytes == 0


@given(data=st.data(), garbage=st.binary(max_size=100))
def test_garbage_is_frames_or_damage_and_takes_no_more_memory_than_it_has_bytes(
    data: st.DataObject, garbage: bytes
) -> None:
    splitter = FrameSplitter()
    try:
        for piece in data.draw(cut(garbage)):
            for frame in splitter.feed(piece):
                assert len(frame) <= len(garbage)
    except CorruptDataError:
        pass
    assert splitter.incomplete_bytes <= len(garbage)


def told(pieces: list[bytes]) -> list[tuple[object, ...]]:
    """What a server connection tells about these bytes."""
    connection = ServerConnection(VERSIONS, max_frame_bytes=1000)
    events: list[tuple[object, ...]] = []
    for piece in pieces:
        connection.receive_data(piece)
        for event in connection.events():
            if isinstance(event, RequestReceived):
                events.append((event.header, bytes(event.body), event.position))
            else:
                events.append((type(event.error), str(event.error)))
                return events
    return events


REQUESTS = st.one_of(
    st.builds(HeartbeatRequest, group_id=st.text(st.characters(codec="ascii"), max_size=9)),
    st.builds(MetadataRequest, topics=st.none() | st.just([MetadataRequestTopic(name="t")])),
)


@given(data=st.data(), requests=st.lists(REQUESTS, max_size=5), tail=st.binary(max_size=20))
def test_server_events_do_not_depend_on_the_cuts(
    data: st.DataObject, requests: list[HeartbeatRequest | MetadataRequest], tail: bytes
) -> None:
    stream = b"".join(
        b"".join(encode_request(request, version=4, correlation_id=number, client_id="c"))
        for number, request in enumerate(requests)
    )
    whole = told([stream + tail])

    assert told(data.draw(cut(stream + tail))) == whole
    assert len(whole) >= len(requests)


def test_damage_is_told_as_a_refusal() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(b"\xff\xff\xff\xff")

    assert [type(event) for event in connection.events()] == [ConnectionRefused]
