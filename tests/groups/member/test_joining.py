"""The options of joining a group: what ``JoinOptions`` names is what ``join`` takes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from headrace.groups import elastic, static
from headrace.groups.member import Membership
from headrace.groups.member.config import JoinOptions
from headrace.sync.groups import elastic as blocking_elastic
from headrace.sync.groups import static as blocking_static

NOT_OF_JOIN = {"random", "threads"}


def test_the_options_of_join_are_the_arguments_of_a_membership_with_the_same_types() -> None:
    given = inspect.signature(Membership.__init__).parameters.values()
    arguments = {
        each.name: each.annotation
        for each in given
        if each.kind is each.KEYWORD_ONLY and each.name not in NOT_OF_JOIN
    }
    options = {
        name: each.__forward_arg__.replace("[M]", "[GroupMessage]")
        for name, each in JoinOptions.__annotations__.items()
    }
    assert options == arguments


@pytest.mark.parametrize("module", [elastic, static, blocking_elastic, blocking_static])
def test_every_join_takes_the_same_options(module: object) -> None:
    options = inspect.signature(module.join).parameters["options"]  # type: ignore[attr-defined]
    assert options.annotation == "Unpack[JoinOptions[GroupMessage]]"


def test_an_option_that_there_is_not_is_refused_by_its_name() -> None:
    js: Any = None
    with pytest.raises(TypeError, match="concurency"):
        elastic.join(js, "S", "g", "m", concurency=2)  # type: ignore[call-arg]
