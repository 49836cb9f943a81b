"""What a broker has the controller know of the directories of its replicas: sent until it is answered."""

from __future__ import annotations

import uuid

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.directory_assignments import (
    MAX_PARTITIONS,
    RETRY_MS,
    TIMEOUT_MS,
    DirectoryAssignments,
)
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tests.support.cluster.controller import Rig

TOPIC = uuid.UUID(int=9)
A, B = uuid.UUID(int=101), uuid.UUID(int=102)
TAKEN = AssignReplicasToDirsResponse()
"""The answer that refuses nothing."""


def named(request: AssignReplicasToDirsRequest) -> dict[PartitionKey, uuid.UUID]:
    """The directory of each partition in a request."""
    return {
        (topic.topic_id, each.partition_index): directory.id  # type: ignore[misc]
        for directory in request.directories
        for topic in directory.topics
        for each in topic.partitions
    }


def test_one_request_is_in_flight_until_it_is_answered_or_lost() -> None:
    assignments = DirectoryAssignments(1)
    assert assignments.next_request(5, 0) is None
    assert assignments.next_deadline_ms() is None
    assignments.want((TOPIC, 0), A)
    first = assignments.next_request(5, 0)
    assert first is not None
    assert (first.broker_id, first.broker_epoch, named(first)) == (1, 5, {(TOPIC, 0): A})
    assignments.want((TOPIC, 1), B)
    assert assignments.next_request(5, TIMEOUT_MS - 1) is None
    again = assignments.next_request(6, TIMEOUT_MS)
    assert again is not None
    assert (again.broker_epoch, set(named(again))) == (6, {(TOPIC, 0), (TOPIC, 1)})
    assignments.on_answer(first, TAKEN, TIMEOUT_MS)
    assert assignments.next_request(6, TIMEOUT_MS) is None, "the answer to an older request is ignored"
    assignments.on_answer(again, TAKEN, TIMEOUT_MS)
    assert assignments.next_deadline_ms() is None


def test_a_refused_or_lost_request_is_sent_again() -> None:
    for answer in (AssignReplicasToDirsResponse(error_code=E.STALE_BROKER_EPOCH), None):
        assignments = DirectoryAssignments(1)
        assignments.want((TOPIC, 0), A)
        request = assignments.next_request(5, 0)
        assert request is not None
        assignments.on_answer(request, answer, 10)
        assert assignments.next_request(5, 10 + RETRY_MS - 1) is None
        assert assignments.next_deadline_ms() == 10 + RETRY_MS
        assert assignments.next_request(6, 10 + RETRY_MS) is not None


def test_what_changes_while_a_request_is_in_flight_is_sent_too() -> None:
    assignments = DirectoryAssignments(1)
    for index in range(2):
        assignments.want((TOPIC, index), A)
    request = assignments.next_request(5, 0)
    assert request is not None
    assignments.want((TOPIC, 0), B)
    assignments.discard((TOPIC, 1))
    assignments.on_answer(request, TAKEN, 1)
    second = assignments.next_request(5, 1)
    assert second is not None
    assert named(second) == {(TOPIC, 0): B}


def test_many_go_in_several_requests() -> None:
    assignments = DirectoryAssignments(1)
    for index in range(MAX_PARTITIONS + 1):
        assignments.want((TOPIC, index), A)
    sizes = []
    while (request := assignments.next_request(5, 0)) is not None:
        sizes.append(len(named(request)))
        assignments.on_answer(request, TAKEN, 0)
    assert sizes == [MAX_PARTITIONS, 1]


def test_the_controller_learns_the_directory_of_each_replica() -> None:
    rig = Rig()
    known, image = rig.partition.key, rig.controller.context.image
    rig.create("two", (1,), (1,))
    two = image.topic_ids["two"]
    assignments = DirectoryAssignments(1)
    for key, directory in (((two, 0), A), ((two, 1), B), (known, B), ((TOPIC, 0), A)):
        assignments.want(key, directory)
    request = assignments.next_request(rig.epochs[1], 0)
    assert request is not None
    response = rig.request(request)
    errors = {
        (directory.id, topic.topic_id, each.partition_index): each.error_code
        for directory in response.directories
        for topic in directory.topics
        for each in topic.partitions
    }
    assert (response.error_code, errors) == (
        E.NONE,
        {(A, two, 0): E.NONE, (B, two, 1): E.NONE, (B, *known): E.NONE, (A, TOPIC, 0): E.UNKNOWN_TOPIC_ID},
    )
    assert [image.partitions[key].directory_of(1) for key in ((two, 0), (two, 1), known)] == [A, B, B]
    rig.delete("two")
    request.broker_epoch = -7
    assert rig.request(request) == AssignReplicasToDirsResponse(error_code=E.STALE_BROKER_EPOCH)
