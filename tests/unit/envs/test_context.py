"""Who an environment is: numbers, seeds, folders, ports and devices of its own."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from support.envs import Drift

from exarl.envs import describe_env, make_env
from exarl.envs.context import EnvContext, free_port, make_context, visible_devices
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory
from exarl.run.build import Home, build_env
from exarl.run.configure import configure


def test_each_environment_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    made = [make_context(i, i // 2, 9, tmp_path / f"{i:04d}") for i in range(6)]
    assert len({context.seed for context in made}) == 6
    assert len({context.port for context in made}) == 6
    assert all(context.work_dir.is_dir() for context in made)
    assert [context.devices for context in made] == [("2",), ("5",)] * 3
    again = make_context(3, 0, 9, tmp_path / "0003")
    assert again.seed == made[3].seed
    assert make_context(3, 0, 8, tmp_path / "0003").seed != made[3].seed
    for context in made:
        assert EnvContext.from_json(json.loads(json.dumps(context.to_json()))) == context


def test_the_port_is_free() -> None:
    first = free_port(17)
    with socket.socket() as taken:
        taken.bind(("", first))
        taken.listen()
        second = free_port(17)
        assert second != first
    assert free_port(17) == first


@pytest.mark.parametrize(
    ("listed", "expected"), [("", []), ("-1", []), ("GPU-a, GPU-b", ["GPU-a", "GPU-b"])]
)
def test_devices_are_those_this_process_may_use(
    listed: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert visible_devices() == expected


class Curious(Drift):
    """Leaves its context where a test finds it, after a look at its own folder."""

    def __init__(self, context: EnvContext, mood: str = "good") -> None:
        super().__init__()
        if mood != "good":
            raise ValueError("not today")
        self.context = context
        (context.work_dir / "notes.txt").write_text("I was here")


@pytest.fixture
def curious() -> Any:
    gymnasium.register("Curious-v0", Curious)
    yield "Curious-v0"
    gymnasium.registry.pop("Curious-v0")


def test_it_is_handed_to_whoever_asks(curious: str, tmp_path: Path) -> None:
    assert list(describe_env(curious)[0]) == ["mood"], "it is no parameter for the user"
    configuration = configure(overrides={"env": curious, "seed": 4})
    home = Home(RunDirectory(tmp_path / "run"), 12, 3)
    env, _ = build_env(configuration, home=home)
    context = env.unwrapped.context
    assert (context.index, context.rank) == (12, 3)
    assert context.work_dir == tmp_path / "run" / "envs" / "0012"
    assert (context.work_dir / "notes.txt").exists()


def test_outside_a_run_the_folder_goes_with_the_environment(curious: str) -> None:
    env, _ = make_env(curious, {})
    folder = env.unwrapped.context.work_dir  # type: ignore[attr-defined]
    assert (folder / "notes.txt").exists()
    del env
    assert not folder.parent.exists()


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_an_environment_that_cannot_be_made_leaves_nothing(
    curious: str, tmp_path: Path, isolation: str
) -> None:
    given = {"env": curious, "mood": "bad", "env_isolation": isolation}
    home = Home(RunDirectory(tmp_path / "some" / "run"), 0, 0)
    with pytest.raises(ConfigError, match=r"cannot be made.*not today"):
        build_env(configure(overrides=given), home=home)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"step_timeout": 1.0}, "step_timeout needs env_isolation process"),
        ({"reset_timeout": 1.0}, "reset_timeout needs env_isolation process"),
        ({"env_isolation": "process", "process_per_env": 2}, "env_isolation process needs process"),
        ({"env_failure": "restart", "process_per_env": 2}, "env_failure restart needs process_per"),
        ({"max_env_failures": 0}, "max_env_failures must be >= 1"),
        ({"env_failure": "ignore"}, "env_failure"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configure(overrides={"env": "CartPole-v1", **given})
