"""The packaged science cases and Tetris. Importing this package registers them with Gymnasium, as the
import of any package of environments does."""

from __future__ import annotations

import gymnasium

ENVIRONMENTS: dict[str, tuple[str, int | None]] = {
    "ExaBooster-v0": ("booster.env:ExaBooster", 100),
    "ExaBoosterDiscrete-v0": ("booster.env:ExaBoosterDiscrete", 100),
    "ExaCH-v0": ("cahn_hilliard.env:ExaCH", 30),
    "ExaCH3D-v0": ("cahn_hilliard.env:ExaCH3D", 30),
    "ExaCovid-v0": ("covid.env:ExaCovid", 21),
    "ExaTetris-v0": ("tetris.env:ExaTetris", 10_000),
    "ExaTetrisNES-v0": ("tetris.nes:ExaTetrisNES", None),  # needs the extra "tetris"
    "ExaWaterClusterDiscrete-v0": ("water_cluster.env:ExaWaterClusterDiscrete", 50),
}
"""id -> (class, below this package; limit on an episode's steps)"""

for _id, (_class, _limit) in ENVIRONMENTS.items():
    gymnasium.register(id=_id, entry_point=f"{__name__}.{_class}", max_episode_steps=_limit)
