"""What a broker has the controller know of the directories of its replicas: sent until it is answered."""

from __future__ import annotations

import uuid
from typing import Any

from kafkaprod.broker.controller.assignment_requests import assignment_answer, assignment_event, assignment_request
from kafkaprod.broker.controller.events import AssignmentAnswer, CreateTopic, DeleteTopic
from kafkaprod.broker.controller.requests import on_request
from kafkaprod.broker.replication.directory_assignments import (
    MAX_PARTITIONS,
    RETRY_MS,
    TIMEOUT_MS,
    DirectoryAssignments,
)
from kafkaprod.protocol.error_codes import ErrorCode as E
from tests.support.cluster.controller import Rig

TOPIC = uuid.UUID(int=9)
A, B = uuid.UUID(int=101), uuid.UUID(int=102)


def test_one_request_is_in_flight_until_it_is_answered_or_lost() -> None:
    assignments = DirectoryAssignments(1)
    assert assignments.next_request(5, 0) is None
    assert assignments.next_deadline_ms() is None
    assignments.want((TOPIC, 0), A)
    first = assignments.next_request(5, 0)
    assert first is not None
    assert (first.broker_id, first.broker_epoch, dict(first.directories)) == (1, 5, {(TOPIC, 0): A})
    assignments.want((TOPIC, 1), B)
    assert assignments.next_request(5, TIMEOUT_MS - 1) is None
    again = assignments.next_request(6, TIMEOUT_MS)
    assert again is not None
    assert (again.broker_epoch, set(again.directories)) == (6, {(TOPIC, 0), (TOPIC, 1)})
    assignments.on_answer(first, AssignmentAnswer(E.NONE, {(TOPIC, 0): E.NONE}), TIMEOUT_MS)
    assert assignments.next_request(6, TIMEOUT_MS) is None, "the answer to an older request is ignored"
    assignments.on_answer(again, AssignmentAnswer(E.NONE, dict.fromkeys(again.directories, E.NONE)), TIMEOUT_MS)
    assert assignments.next_deadline_ms() is None


def test_a_refused_or_lost_request_is_sent_again() -> None:
    for answer in (AssignmentAnswer(E.STALE_BROKER_EPOCH), E.NETWORK_EXCEPTION):
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
    assignments.on_answer(request, AssignmentAnswer(E.NONE, dict.fromkeys(request.directories, E.NONE)), 1)
    second = assignments.next_request(5, 1)
    assert second is not None
    assert dict(second.directories) == {(TOPIC, 0): B}


def test_many_go_in_several_requests() -> None:
    assignments = DirectoryAssignments(1)
    for index in range(MAX_PARTITIONS + 1):
        assignments.want((TOPIC, index), A)
    sizes = []
    while (request := assignments.next_request(5, 0)) is not None:
        sizes.append(len(request.directories))
        assignments.on_answer(request, AssignmentAnswer(E.NONE), 0)
    assert sizes == [MAX_PARTITIONS, 1]


def test_requests_and_answers_say_the_same_as_events() -> None:
    rig = Rig()
    known, image = rig.partition.key, rig.controller.context.image
    rig.ask(CreateTopic, name="two", assignment=((1,), (1,)))
    two = image.topic_ids["two"]
    assignments = DirectoryAssignments(1)
    for key, directory in (((two, 0), A), ((two, 1), B), (known, B), ((TOPIC, 0), A)):
        assignments.want(key, directory)
    event = assignments.next_request(rig.epochs[1], 0)
    assert event is not None
    request = assignment_request(event)
    assert assignment_event(request)._replace(reply=event.reply) == event
    answers: list[Any] = []
    on_request(rig.controller, request, 0, answers.append)
    while rig.controller.turn(0):
        pass
    (response,) = answers
    assert assignment_answer(response) == AssignmentAnswer(
        E.NONE, {(two, 0): E.NONE, (two, 1): E.NONE, known: E.NONE, (TOPIC, 0): E.UNKNOWN_TOPIC_ID}
    )
    assert [image.partitions[key].directory_of(1) for key in ((two, 0), (two, 1), known)] == [A, B, B]
    rig.ask(DeleteTopic, name="two")
    stale = assignment_request(event._replace(broker_epoch=-7))
    on_request(rig.controller, stale, 0, answers.append)
    while rig.controller.turn(0):
        pass
    assert assignment_answer(answers[1]) == AssignmentAnswer(E.STALE_BROKER_EPOCH)
