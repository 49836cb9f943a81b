"""The dispatch of commands: every outcome is an answer."""

from __future__ import annotations

import pytest

from kafkaprod.broker.controller.cluster_view import COMMANDS, asked_of
from kafkaprod.broker.embedding.commands import Command, CommandError, answer_to
from kafkaprod.broker.metadata.image import ClusterImage


def _refuse(_: Command) -> None:
    raise CommandError("process 7 does not run")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ({"command": "count", "from": 2}, {"count": 3}),
        ({"command": "clear"}, {}),
        ({"command": "count"}, {"error": "KeyError: 'from'"}),
        ({"command": "refuse"}, {"error": "process 7 does not run"}),
        ({"command": "dance"}, {"error": "unknown command 'dance': there are count, clear, refuse"}),
        ({}, {"error": "KeyError: 'command'"}),
    ],
)
def test_every_outcome_is_an_answer(command: Command, answer: Command) -> None:
    handlers = {"count": lambda each: {"count": each["from"] + 1}, "clear": lambda _: None, "refuse": _refuse}
    assert answer_to(command, handlers) == answer


@pytest.mark.parametrize("name", COMMANDS)
def test_the_controller_knows_each_event_that_its_table_names(name: str) -> None:
    with pytest.raises(KeyError):  # incomplete, and not unknown
        asked_of(ClusterImage(), {"command": name}, print)
