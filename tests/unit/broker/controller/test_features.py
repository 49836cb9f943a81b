"""Levels of features: which changes are made, and how the others are refused."""

from __future__ import annotations

import pytest

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.features import UpgradeType
from kafkaprod.broker.metadata.features import DEFAULT_LEVELS
from kafkaprod.broker.metadata.records import FeatureLevelRecord, NoOpRecord
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.cluster.controller import Rig

TRANSACTIONS, GROUPS = "transaction.version", "group.version"
UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def update(rig: Rig, levels: dict[str, tuple[int, int]], *, validate_only: bool = False) -> tuple[int, str | None]:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, (level, kind) in levels.items()
    ]
    rig.controller.context.voter_id = 7
    answer = rig.request(UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only))
    names = [each.feature for each in answer.results]
    assert names == ([] if answer.error_code else list(levels))
    return answer.error_code, answer.error_message


def levels_of(rig: Rig) -> dict[str, int]:
    return rig.controller.context.image.features


def test_levels_go_down_and_up_again() -> None:
    rig = Rig()
    for name, level, kind in (
        (TRANSACTIONS, 1, DOWN),
        (TRANSACTIONS, 2, UP),
        (TRANSACTIONS, 0, UNSAFE),
        (GROUPS, 1, UP),
    ):
        before = rig.controller.log.end_offset
        assert update(rig, {name: (level, kind)}) == (ErrorCode.NONE, None)
        assert levels_of(rig)[name] == level
        assert rig.controller.log.end_offset == before + 1
    assert update(rig, {}) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (TRANSACTIONS, 1, 0, "The controller does not support the given upgrade type."),
        (TRANSACTIONS, 1, 4, "The controller does not support the given upgrade type."),
        (TRANSACTIONS, -1, DOWN, "A feature version cannot be less than 0."),
        (TRANSACTIONS, 3, UP, "Local controller 7 only supports versions 0-2"),
        ("metadata.version", 24, UNSAFE, "Local controller 7 only supports versions 25"),
        ("share.version", 1, UP, "Local controller 7 does not support this feature."),
        ("share.version", 0, UNSAFE, "Feature share.version not found."),
        (
            *(TRANSACTIONS, 1, UP),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
    ],
)
def test_a_wrong_change_leaves_all_levels(name: str, level: int, kind: int, reason: str) -> None:
    rig = Rig()
    before = rig.controller.log.end_offset
    message = f"Invalid update version {level} for feature {name}. {reason}"
    assert update(rig, {GROUPS: (0, DOWN), name: (level, kind)}) == (ErrorCode.INVALID_UPDATE_VERSION, message)
    assert levels_of(rig) == DEFAULT_LEVELS
    assert rig.controller.log.end_offset == before


def test_no_downgrade_raises_a_level() -> None:
    rig = Rig()
    update(rig, {TRANSACTIONS: (0, DOWN)})
    code, message = update(rig, {TRANSACTIONS: (1, DOWN)})
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert message is not None
    assert message.endswith("Can't downgrade to a newer version.")


def test_a_change_that_is_only_checked_writes_nothing() -> None:
    rig = Rig()
    before = rig.controller.log.end_offset
    assert update(rig, {TRANSACTIONS: (1, DOWN)}, validate_only=True) == (ErrorCode.NONE, None)
    assert (levels_of(rig), rig.controller.log.end_offset) == (DEFAULT_LEVELS, before)


def test_a_broker_of_an_older_build_limits_the_levels() -> None:
    """It registers as long as it has the levels of now, and no level that it lacks can be set."""
    rig = Rig()
    older = {**{name: (level, level) for name, level in DEFAULT_LEVELS.items()}, TRANSACTIONS: (0, 1)}
    assert rig.register(4, features=older).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert update(rig, {TRANSACTIONS: (1, DOWN), GROUPS: (0, DOWN)})[0] == ErrorCode.NONE
    assert rig.register(4, features={**older, GROUPS: (0, 0)}).error_code == ErrorCode.NONE
    code, message = update(rig, {TRANSACTIONS: (2, UP)})
    assert (code, message) == (
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version 2 for feature {TRANSACTIONS}. Broker 4 only supports versions 0-1",
    )
    assert str(update(rig, {GROUPS: (1, UP)})[1]).endswith("Broker 4 does not support this feature.")


def test_a_start_keeps_the_levels_and_adds_those_that_an_older_log_lacks() -> None:
    rig = Rig()
    update(rig, {TRANSACTIONS: (1, DOWN), GROUPS: (0, DOWN)})
    batches = rig.controller.log.batches()
    again = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, batches=batches)
    assert again.context.image.features == {**DEFAULT_LEVELS, TRANSACTIONS: 1, GROUPS: 0}
    assert again.log.batches()[-1].records == (NoOpRecord(),)
    first = batches[0]._replace(records=(FeatureLevelRecord(name="metadata.version", feature_level=25),))
    older = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, batches=[first])
    assert older.context.image.features == DEFAULT_LEVELS


def test_a_level_that_a_start_names_counts_more_than_that_of_the_log() -> None:
    first = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, levels={TRANSACTIONS: 0})
    assert first.context.image.features == {**DEFAULT_LEVELS, TRANSACTIONS: 0}
    batches = first.log.batches()
    again = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, batches=batches, levels={TRANSACTIONS: 1})
    assert again.context.image.features == {**DEFAULT_LEVELS, TRANSACTIONS: 1}
