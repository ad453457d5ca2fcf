"""Every format computes what ``evaluate`` does."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.docs import ROOT, snippets
from support.policies import POLICIES, observations, recurrent

from exarl.export import Policy, evaluate, from_npz, to_npz, to_onnx
from exarl.export.policy import Lstm


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Policy:
    made: Policy = POLICIES[request.param]()
    return made


def test_npz_brings_everything_back(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "no_suffix"
    to_npz(policy, path)
    found = from_npz(path)
    assert (found.inputs, found.outputs) == (policy.inputs, policy.outputs)
    for one, two in zip(policy.layers, found.layers, strict=True):
        assert type(one) is type(two)
        for field in fields(one):
            value, back = getattr(one, field.name), getattr(two, field.name)
            assert type(value) is type(back)
            np.testing.assert_array_equal(value, back)
    seen = observations(policy, 50)
    np.testing.assert_array_equal(evaluate(found, seen), evaluate(policy, seen))


def test_the_documented_lines_load_it(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    to_npz(policy, "policy.npz")
    found: dict[str, Any] = {}
    (block,) = (b for b in snippets(ROOT / "docs/export.md", "python") if "np.load" in b.code)
    exec(block.code, found)
    for layer, (kind, values) in zip(policy.layers, found["layers"], strict=True):
        assert kind == type(layer).__name__
        assert values.keys() == vars(layer).keys()


def test_onnx_computes_the_same(policy: Policy, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    to_onnx(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(
        (tmp_path / "policy.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    seen = observations(policy, 1000)
    expected = evaluate(policy, seen)
    if not policy.recurrent:
        (found,) = session.run(["action"], {"observation": seen})
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        return
    cells = [n for n, layer in enumerate(policy.layers) if isinstance(layer, Lstm)]
    state = {f"{s}{n}": np.zeros((1, 12), np.float32) for n in cells for s in "hc"}
    for row, action in zip(seen, expected, strict=True):
        names = ["action", *(f"{name}_next" for name in state)]
        found, *values = session.run(names, {"observation": row[None], **state})
        state = dict(zip(state, values, strict=True))
        np.testing.assert_allclose(found[0], action, rtol=0, atol=1e-5)


def test_onnx_takes_many_episodes_at_once(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    policy = recurrent()
    to_onnx(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(
        (tmp_path / "policy.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    first, *states = (value.name for value in session.get_inputs())
    assert first == "observation"
    seen = observations(policy, 8)
    feeds = {"observation": seen, **{name: np.zeros((8, 12), np.float32) for name in states}}
    (found,) = session.run(["action"], feeds)
    expected = [evaluate(policy, row[None])[0] for row in seen]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
