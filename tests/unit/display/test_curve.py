"""The learning curve is drawn from whatever rows there are."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl.display import curve
from exarl.display.curve import column, draw_curve, evaluated_at, thin

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("error")  # matplotlib warns of empty or absurd axes

TITLE = "DQN-v0 · CartPole-v1 · sync"


def make_rows(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "timesteps_total": 100 * (i + 1),
            "episode_reward_mean": 10.0 * i,
            "episode_reward_min": 5.0 * i,
            "episode_reward_max": 20.0 * i,
            "loss": 1.0 / (i + 1),
            "epsilon": max(0.05, 1 - i / 10),
            **changes,
        }
        for i in range(count)
    ]


def drawn(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


def figure_of(rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, **how: Any) -> Any:
    """The figure that would have been saved, after checking that it draws."""
    figures: list[Any] = []
    monkeypatch.setattr(curve, "_save", lambda figure, path: figures.append(figure))
    assert draw_curve(rows, Path("unused.png"), TITLE, **how)
    figures[0].canvas.draw()
    return figures[0]


def test_writes_a_png_of_the_stated_size(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "curve.png"
    assert draw_curve(make_rows(50), path, TITLE, 475.0)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert drawn(path).shape[:2] == (750, 1200)
    assert [p.name for p in path.parent.iterdir()] == ["curve.png"]


def test_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = figure_of(make_rows(50), monkeypatch, target=475.0)
    rewards, loss, epsilon = figure.axes
    mean, target = rewards.get_lines()
    np.testing.assert_array_equal(mean.get_xdata(), 100 * np.arange(1, 51))
    np.testing.assert_array_equal(mean.get_ydata(), 10.0 * np.arange(50))
    assert list(target.get_ydata()) == [475.0, 475.0]
    assert len(rewards.collections) == 1  # the band
    assert (loss.get_yscale(), loss.get_ylabel()) == ("log", "loss")
    assert epsilon.get_ylabel() == "epsilon"
    assert rewards.get_title(loc="left") == TITLE


def test_evaluations_and_quartiles_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(50, episode_reward_q25=3.0, episode_reward_q75=9.0)
    played = [{"timesteps_total": step, "reward_mean": step / 10} for step in (1000, 2000)]
    figure = figure_of(rows, monkeypatch, target=475.0, evaluations=played)
    rewards = figure.axes[0]
    names = [text.get_text() for text in rewards.get_legend().get_texts()]
    assert names == ["mean", "quartiles", "evaluation", "target 475"]
    _, greedy, _ = rewards.get_lines()
    np.testing.assert_array_equal(greedy.get_ydata(), [100.0, 200.0])
    low, high = rewards.collections[0].get_datalim(rewards.transData).intervaly
    assert (low, high) == (3.0, 9.0)
    title, legend = (p.get_window_extent() for p in (rewards._left_title, rewards.get_legend()))
    assert not title.overlaps(legend)


def test_negative_losses_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**row, "loss": 2.0 - i} for i, row in enumerate(make_rows(9, epsilon=None))]
    loss = figure_of(rows, monkeypatch).axes[1]
    assert loss.get_yscale() == "linear"
    np.testing.assert_array_equal(loss.get_lines()[0].get_ydata(), 2.0 - np.arange(9))


def test_actor_and_critic_have_a_side_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(9, loss=None, epsilon=None, critic_loss=0.1, policy_loss=-2.0)
    _, left, right = figure_of(rows, monkeypatch).axes
    assert (left.get_ylabel(), left.get_yscale()) == ("critic loss", "log")
    assert (right.get_ylabel(), right.get_yscale()) == ("policy loss", "linear")


def test_panels_depend_on_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(figure_of(make_rows(9, loss=None, epsilon=None), monkeypatch).axes) == 1
    assert len(figure_of(make_rows(9, loss=-1.0, epsilon=None), monkeypatch).axes) == 2
    assert len(figure_of(make_rows(9, epsilon=None), monkeypatch).axes) == 2
    assert len(figure_of(make_rows(9, loss=math.nan), monkeypatch).axes) == 2
    without_band = figure_of(make_rows(9, episode_reward_min=None), monkeypatch)
    assert not without_band.axes[0].collections


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{}],
        make_rows(3, episode_reward_mean=math.nan),
        make_rows(3, episode_reward_mean=None),
        make_rows(3, episode_reward_mean=math.inf),
        make_rows(3, timesteps_total=None),
        [{"timesteps_total": 5}, {"episode_reward_mean": 1.0}],
    ],
)
def test_nothing_to_draw_writes_nothing(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    assert not draw_curve(rows, tmp_path / "curve.png", TITLE, 475.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "rows",
    [
        make_rows(1),
        make_rows(1, timesteps_total=0),
        [*make_rows(2)[:1], {"timesteps_total": 7}, {"episode_reward_mean": 1}, *make_rows(4)[2:]],
        [{key: str(value) for key, value in row.items()} for row in make_rows(5)],  # from a CSV
        make_rows(5, episode_reward_max=1e300, loss=1e-300),
        make_rows(5, episode_reward_mean=-1e99, loss=1e99),
        make_rows(5, loss=0.5),
        make_rows(3) + make_rows(3, loss=1e30),
        make_rows(5, timesteps_total=10**400),
        make_rows(3) + make_rows(3)[:1],  # steps go back
    ],
)
@pytest.mark.parametrize("target", [None, math.nan, 1e9])
def test_odd_rows_are_drawn(
    rows: list[dict[str, Any]], target: float | None, tmp_path: Path
) -> None:
    countable = bool(np.isfinite(column(rows, "timesteps_total")).any())
    assert draw_curve(rows, tmp_path / "curve.png", "$\\frac{" * 40, target) == countable


def test_evaluations_are_placed_on_another_axis_by_the_rows() -> None:
    rows = [{"timesteps_total": 100 * i, "simulations_total": 3 * i} for i in (1, 2, 4)]
    played = [{"timesteps_total": 150}, {"timesteps_total": 400}]
    assert evaluated_at(played, rows, "steps").tolist() == [150, 400]
    assert evaluated_at(played, rows, "simulations").tolist() == [4.5, 12]
    assert np.isnan(
        evaluated_at(played, rows, "core_hours")
    ).all()  # an older run has no such column


def test_column_takes_what_is_a_number() -> None:
    rows = [{"x": 1}, {"x": "2.5"}, {"x": ""}, {"x": None}, {}, {"x": math.inf}, {"x": True}]
    rows += [{"x": np.float32(3)}, {"x": [1]}, {"x": 10**400}]
    expected = [1, 2.5, math.nan, math.nan, math.nan, math.nan, 1, 3, math.nan, math.nan]
    np.testing.assert_array_equal(column(rows, "x"), expected)


def test_thin_keeps_extremes_and_averages_the_rest() -> None:
    steps = np.arange(1000.0)[::-1].copy()
    values = steps.copy()
    values[:10] = np.nan  # the last ten steps
    found_steps, found = thin(steps, {"mean": values, "a_min": values, "a_max": values}, 100)
    np.testing.assert_allclose(found_steps, np.arange(100) * 10 + 4.5)
    expected = np.where(np.arange(100) < 99, np.arange(100) * 10 + 4.5, np.nan)
    np.testing.assert_allclose(found["mean"], expected)
    np.testing.assert_allclose(found["a_min"], expected - 4.5)
    np.testing.assert_allclose(found["a_max"], expected + 4.5)


def test_a_failed_save_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    path = tmp_path / "curve.png"
    draw_curve(make_rows(5), path, TITLE)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(FigureCanvasAgg, "print_png", fail)
    with pytest.raises(OSError, match="disk full"):
        draw_curve(make_rows(9), path, TITLE)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["curve.png"]


def test_neither_import_nor_drawing_needs_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from exarl.display.curve import draw_curve\n"
        "assert 'matplotlib' not in sys.modules\n"
        "rows = [{'timesteps_total': 1, 'episode_reward_mean': 2}]\n"
        f"assert draw_curve(rows, Path({str(tmp_path / 'c.png')!r}), 't')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
