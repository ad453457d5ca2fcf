"""The figures of ``python -m benchmarks.house`` keep their limits."""

from __future__ import annotations

from benchmarks import house
from benchmarks.source import SourceFile


def test_signatures_say_what_they_take(sources: list[SourceFile]) -> None:
    found = house.slots(sources)
    share = house.any_share(found)
    assert share < house.LIMITS["any_share"], f"{share:.1%} of all signature slots contain Any"


def test_no_room_leaves_its_signatures_open(sources: list[SourceFile]) -> None:
    limit = house.LIMITS["any_share_of_a_room"]
    over = [f"{r}: {share:.1%}" for r, share in house.any_shares(sources).items() if share >= limit]
    assert not over, "\n".join(over)


def test_any_has_one_other_name(sources: list[SourceFile]) -> None:
    found = house.aliases_of_any(sources)
    assert len(found) <= house.LIMITS["aliases_of_any"], "\n".join(found)


def test_a_class_name_stands_for_one_class(sources: list[SourceFile]) -> None:
    found = [f"{name}: {', '.join(at)}" for name, at in house.double_names(sources).items()]
    assert len(found) <= house.LIMITS["double_names"], "\n".join(found)


def test_agents_are_composed_not_inherited(sources: list[SourceFile]) -> None:
    limit = house.LIMITS["agent_depth"]
    over = {name: depth for name, depth in house.agent_depths(sources).items() if depth > limit}
    assert not over, "an algorithm holds another as a field; it is not a subclass of it"


def test_no_module_is_an_argument(sources: list[SourceFile]) -> None:
    found = house.module_arguments(sources)
    assert len(found) <= house.LIMITS["module_arguments"], "\n".join(found)
