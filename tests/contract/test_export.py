"""A trained policy does the same in C, ONNX and NumPy as in EXARL, to 1e-5, for every agent."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from gymnasium.spaces import Discrete
from support.matrix import parameters
from support.separable import Stiff, Valves

import exarl
from exarl import ExaLearner
from exarl.cli.main import main
from exarl.envs.structured import JoinedActions
from exarl.export import evaluate, from_npz
from exarl.records.checkpoint import load_newest
from exarl.records.directory import open_run
from exarl.run.build import build_agent, build_episode
from exarl.run.configure import configure_again

CASES = (
    *("DQN, discrete", "DQN, box", "TD3", "SAC, box", "SAC, discrete", "A2C, box", "PPO, box"),
    *("QRDQN", "CrossQ", "PQN"),
    *(pytest.param(case, marks=pytest.mark.slow) for case in ("SAC, ensemble", "TQC", "XQC")),
)


NORMED = ("DQN, discrete, layer_norm", "SAC, box, layer_norm")


@pytest.fixture(params=(*CASES, *NORMED))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "run"
    case = request.param.removesuffix(", layer_norm")
    chosen = parameters(case, run_dir=str(path), layer_norm=request.param in NORMED)
    ExaLearner(argv=[], serial=True, progress=False, **chosen).run()
    return path


def test_a_policy_is_not_taken_for_one_with_or_without_layer_normalisation(
    tmp_path: Path, capfd: Any
) -> None:
    for made, other in (("true", "false"), ("false", "true")):
        path = tmp_path / made
        words = parameters("A2C, discrete", run_dir=str(path), layer_norm=made == "true")
        ExaLearner(argv=[], serial=True, progress=False, **words).run()
        config = json.loads((path / "config.json").read_text())
        config["model"]["layer_norm"] = other == "true"
        (path / "config.json").write_text(json.dumps(config))
        capfd.readouterr()
        longer = ["resume", str(path), "--total_steps", "400", "--serial"]
        for command in (["evaluate", str(path)], ["export", str(path), "--format", "c"], longer):
            assert main(command) == 1
            *_, line = capfd.readouterr().err.splitlines()
            assert f"layer_norm is {made} in the checkpoint, {other} in this run" in line


def taken(path: Path, seen: np.ndarray) -> np.ndarray:
    """What the environment would get from EXARL's own greedy policy."""
    configuration = configure_again(open_run(path))
    env, adapter, _ = build_episode(configuration)
    env.close()
    agent = build_agent(configuration, adapter.spec)
    stored = load_newest(open_run(path).checkpoints)
    assert stored is not None
    agent.set_weights(stored.arrays["agent"]["weights"])
    chosen, _ = agent.action(seen.reshape(-1, *adapter.spec.observation.shape))
    if isinstance(env.action_space, Discrete):
        return np.asarray(chosen, float)[:, None]
    return np.array([adapter.decode(action) for action in chosen]).reshape(len(seen), -1)


def by_c(header: Path, folder: Path, seen: np.ndarray, outputs: int) -> np.ndarray:
    source = folder / "policy.c"
    source.write_text(
        f'#include "{header}"\n'
        "void act(const float *o, float *a, int n, int i, int k)"
        "{ for (int j = 0; j < n; ++j) policy_act(o + j * i, a + j * k); }\n"
    )
    library = folder / "policy.so"
    subprocess.run(
        ["cc", "-std=c99", "-O1", "-fPIC", "-shared", source, "-o", library, "-lm"], check=True
    )
    found = np.zeros((len(seen), outputs), np.float32)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (seen, found)]
    ctypes.CDLL(str(library)).act(*pointers, len(seen), seen.shape[1], outputs)
    return found


def by_onnx(path: Path, seen: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path))
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: seen})[0]
    return found


@pytest.mark.parametrize(("kind", "agent"), [(Valves, "PPO-v0"), (Stiff, "A2C-v0")])
def test_actions_of_numbers_and_choices_are_those_of_python(
    kind: Any, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {"total_steps": 64, "block_steps": 32, "hidden": [8], "progress": False}
    result = exarl.train(env=kind, agent=agent, **words)
    assert result is not None
    for form in ("npz", "onnx", "c"):
        assert main(["export", str(result.run_dir), "--format", form]) == 0
    policy, rng = exarl.load(result.run_dir), np.random.default_rng(0)
    masked = policy.adapter.spec.mask is not None
    seen = rng.normal(size=(200, 3)).astype(np.float32)
    masks = rng.integers(0, 2, (200, 7)) | [1, 0, 0, 1, 0, 0, 1]  # of each choice one is allowed
    joined = JoinedActions.of(policy.action_space)
    assert joined is not None
    chosen = policy.act(list(seen), list(masks) if masked else None)
    expected = np.array([joined.together(action) for action in chosen])
    assert all(kind.action_space.contains(action) for action in chosen)
    assert len(np.unique(expected[:, 3:], axis=0)) > 1
    fed = np.concatenate([seen, masks], 1, dtype=np.float32) if masked else seen
    found = [
        evaluate(from_npz(result.run_dir / "policy.npz"), fed),
        by_onnx(result.run_dir / "policy.onnx", fed),
        by_c(result.run_dir / "policy.h", tmp_path, fed, 6),
    ]
    for actions in found:
        np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(actions[:, 2:], expected[:, 2:])  # whole numbers, and choices


def test_exported_policies_act_alike(run: Path, tmp_path: Path, capfd: Any) -> None:
    for form in ("npz", "onnx", "c"):
        assert main(["export", str(run), "--format", form]) == 0
    words = capfd.readouterr().out.split()
    inputs, outputs = int(words[words.index("inputs,") - 1]), int(words[-2])
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(1000, inputs)).astype(np.float32)
    expected = taken(run, seen)
    np.testing.assert_allclose(by_c(run / "policy.h", tmp_path, seen, outputs), expected, atol=1e-5)
    archived = evaluate(from_npz(run / "policy.npz"), seen)
    np.testing.assert_allclose(archived, expected, atol=1e-5)
    found = by_onnx(run / "policy.onnx", seen)
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, atol=1e-5)
