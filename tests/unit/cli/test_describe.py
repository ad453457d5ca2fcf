"""``exarl list``, ``exarl describe`` and ``exarl check-env``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from exarl import registry
from exarl.cli.train import with_auto
from exarl.config import type_name
from exarl.run.configure import configure, lookup

KINDS = {
    "agents": ("agent", registry.agents),
    "workflows": ("workflow", registry.workflows),
    "models": ("model", registry.networks),
}
COMPONENTS = [(family, id) for family, known in KINDS.values() for id in known.ids()]


class Fit(gymnasium.Env[Any, Any]):
    """Walks up and down; keeps the keywords it was given."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    seen: tuple[Any, ...] = ()

    def __init__(self, size: int = 3, **others: Any) -> None:
        type(self).seen = (size, others)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.full(1, 0.5, np.float32), 1.0, self.steps == 3, False, {}


class Wild(Fit):
    """No two episodes of a seed are alike, and its numbers leave their space."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _, reward, *rest = super().step(action)
        return np.random.default_rng().uniform(2, 3, 1).astype(np.float32), reward, *rest


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    kinds = {"Fit-v0": Fit, "Wild-v0": Wild}
    for id, kind in kinds.items():
        gymnasium.register(id, entry_point=kind, max_episode_steps=40)
    yield
    for id in kinds:
        del gymnasium.registry[id]


# -- list --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_list_one_kind(exarl: Any, kind: str) -> None:
    answer = exarl("list", kind)
    assert answer.code == 0
    assert answer.out == "\n".join([f"{kind}:", *(f"  {i}" for i in KINDS[kind][1].ids()), ""])


def test_list_environments_begins_with_exarls_own(exarl: Any) -> None:
    ids = exarl("list", "envs").out.split()
    assert ids[0] == "envs:"
    assert ids[1].startswith("Exa")
    assert {"ExaCartPole-v1", "CartPole-v1", "Fit-v0"} <= set(ids)


def test_list_everything(exarl: Any) -> None:
    out = exarl("list").out
    for heading in ("agents:", "envs:", "workflows:", "models:"):
        assert heading in out.splitlines()


# -- describe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "id"), COMPONENTS)
def test_describe_shows_each_parameter_whole(exarl: Any, family: str, id: str) -> None:
    answer = exarl("describe", id)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith(f"{id} (")
    for parameter in lookup(family, id).schema.values():
        at = next(i for i, text in enumerate(lines) if text.startswith(f"  --{parameter.name} "))
        end = next(i for i, text in enumerate(lines) if i >= at and text.endswith(")"))
        facts = " ".join(" ".join(lines[at : end + 1]).split())
        assert type_name(parameter.type) in facts
        assert f"default {json.dumps(parameter.default)}" in facts
        assert parameter.range() in facts
        assert " ".join(answer.out.split()).count(" ".join(parameter.help.split())) >= 1


def test_describe_dqn_says_what_epsilon_is(exarl: Any) -> None:
    out = exarl("describe", "DQN-v0").out
    assert "--epsilon  (float; default 1.0; >= 0, <= 1)\n      exploration at the start" in out


def test_describe_an_environment(exarl: Any) -> None:
    out = exarl("describe", "Fit-v0").out
    assert "Walks up and down" in out
    assert "--size  (int; default 3)" in out
    assert "40 steps" in out
    assert "--env.NAME" in out


def test_describe_says_that_anything_goes_without_a_time_limit_too(exarl: Any) -> None:
    gymnasium.register("Fit-v1", entry_point=Fit)
    try:
        assert "--env.NAME" in exarl("describe", "Fit-v1").out
    finally:
        del gymnasium.registry["Fit-v1"]


def test_describe_what_is_planned_says_so(exarl: Any) -> None:
    for known in (registry.agents, registry.workflows, registry.networks):
        for id in known._planned:
            exarl("describe", id).refused(f"'{id}'", "planned")


# -- check-env ---------------------------------------------------------------------------------------


def test_a_fit_environment_passes(exarl: Any) -> None:
    answer = exarl("check-env", "Fit-v0")
    assert answer.code == 0, answer
    assert "FAIL" not in answer.out
    *_, verdict, proposed = answer.out.splitlines()
    assert verdict == "Fit-v0: fit to train"
    assert proposed == "to train: exarl train --env Fit-v0 --agent DQN-v0"


def test_a_wild_environment_fails_with_1(exarl: Any) -> None:
    answer = exarl("check-env", "Wild-v0")
    assert answer.code == 1
    assert "FAIL  same seed, same episode" in answer.out
    assert "checks failed" in answer.out.splitlines()[-1]


@pytest.mark.parametrize("id", ["CartPole-v1", "ExaCartPole-v1"])
def test_the_stock_environments_pass(exarl: Any, id: str) -> None:
    answer = exarl("check-env", id)
    assert answer.code == 0, answer
    assert "fit to train" in answer.out


def test_keywords_are_checked_and_handed_on(exarl: Any) -> None:
    assert exarl("check-env", "Fit-v0", "--size", "5", "--env.depth", "7").code == 0
    assert Fit.seen == (5, {"depth": 7})
    exarl("check-env", "Fit-v0", "--size", "big").refused("size is int")


def test_an_unknown_environment_is_bad_input(exarl: Any) -> None:
    exarl("check-env", "Fit-v9").refused("unknown environment 'Fit-v9'", "did you mean 'Fit-v0'")


def test_a_path_instead_of_a_module_is_told_the_modules_name(exarl: Any) -> None:
    told = "a module is named as for import, my.envs:Mine-v0"
    exarl("check-env", "my/envs.py:Mine-v0").refused("'my/envs.py:Mine-v0'", told)


@pytest.mark.parametrize("id", ["Ant-v5", "Ant-v2"])
def test_an_environment_whose_package_is_missing_is_bad_input(exarl: Any, id: str) -> None:
    if gymnasium_can_make(id):
        pytest.skip(f"{id} is installed here")
    exarl("check-env", id).refused(f"'{id}'")


def gymnasium_can_make(id: str) -> bool:
    try:
        gymnasium.make(id).close()
    except (gymnasium.error.Error, ImportError):
        return False
    return True


def test_an_environment_as_it_is_made(exarl: Any) -> None:
    found = exarl("describe", "Fit-v0", "--size", "5")
    assert found.code == 0
    assert "Discrete(2)" in found.out
    assert "40 steps" in found.out
    assert Fit.seen == (5, {})
    exarl("describe", "DQN-v0", "--size", "5").refused("--size")


class Rich(Fit):
    """Pays far more than agents like."""

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return seen, -1e6, *rest


def test_check_env_proposes_what_auto_takes_over(exarl: Any) -> None:
    gymnasium.register("Rich-v0", entry_point=Rich, max_episode_steps=40)
    try:
        found = exarl("check-env", "Rich-v0", "--size", "4", "--steps", "20")
        line = "exarl train --env Rich-v0 --size 4 --agent DQN-v0 --reward_scale 2e-05"
        assert f"to train: {line}\n" in found.out
        words = ["--env", "Rich-v0", "--size", "4", "--serial"]
        for more, scale, origin in (
            ([], 2e-5, "auto"),
            (["--reward_scale", "3"], 3, "command line"),
        ):
            given, notes = with_auto([*words, "--auto", *more])
            found = configure(None, [word for word in given if word != "--serial"])
            assert found.values["agent"]["reward_scale"] == scale
            assert found.origins["agent.reward_scale"] == origin
            assert notes[0].startswith("auto: the defaults" if more else "auto: reward_scale")
        exarl("train", *words, "--auto={nonsense").refused("--auto")
    finally:
        del gymnasium.registry["Rich-v0"]
