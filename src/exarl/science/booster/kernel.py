"""A synthetic twin of the Booster's minimum-current regulation, over ``xp``.

In every cycle of 15 Hz the regulator reads the distance of the magnet current's minimum from its
setting, B:IMINER = 10 (minimum - setting), and sets a corrected reference current

    B:VIMIN = setting - alpha B:IMINER - beta,    beta = sum over the past of gamma B:IMINER.

This law and its gains are published; the plant is not. Here it is linear: a deviation decays, follows
the correction, and is disturbed by the line frequency, the ramp of the Main Injector, a slow drift,
noise and kicks. Its constants are chosen so that under the published regulator the channels have the
statistics of the BOOSTR recording. It is a substitute, not a model fitted to the machine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from exarl.envs.functional import normal, split, uniform
from exarl.types import Array, Namespace, Rng

ALPHA, GAMMA = 0.1, 7.535e-5
"""Proportional and integral gain of the published regulator."""
VARIABLES = ("B:VIMIN", "B:IMINER", "B:LINFRQ", "I:IB", "I:MDAT40")
"""The channels of a sample, in the order of the published surrogate."""
QUANTUM = 0.005
"""B:IMINER is recorded in multiples of it."""

SETTING, SETTING_DRIFT = 103.41474, 0.017753
SETTING_LIMITS = (103.28155, 103.50656)
SETTING_STEP, SETTING_CHANGES = 0.001, 846 / 1_295_713
"""B_VIMIN: mean, slow variation and range in A, size and probability of a change."""

LINE, LINE_DRIFT = -8.98581, 15.90266
LINE_STEP, LINE_MEMORY = 0.0876, 0.45
"""Line frequency: mean and slow variation in mHz; size and persistence of its steps."""
LINE_DECAY = LINE_STEP**2 * (1 + LINE_MEMORY) / (1 - LINE_MEMORY) / (2 * LINE_DRIFT**2)

INJECTOR = 3294.0
INJECTOR_PERIOD, BROADCAST_LEAD = 20.022, 1.07
INJECTOR_RAMP = np.array(
    [345, 345, 345, 700, 1470, 2340, 3210, 4090, 4980, 5870,
     6650, 7056, 7017, 6345, 5192, 4065, 2985, 1905, 900, 400, 345], float
)  # fmt: skip
"""Main Injector: mean current in A, period in cycles, by how much MDAT leads, one ramp."""
_KNOTS = np.linspace(0, INJECTOR_PERIOD, len(INJECTOR_RAMP))

PERSISTENCE, GAIN = 0.85, 0.4
PER_LINE, PER_INJECTOR = 9e-5, 3e-6
NOISE, KICK, KICKS = 0.0075, 0.115, 0.07
SLOW, SLOW_CYCLES = 0.0038, 600.0
"""The plant: the share of a deviation that remains after a cycle, and the effect of a correction; A per
mHz and per A; noise, largest kick in A and its probability; size and duration of the slow drift."""

MOVES = np.array(
    [0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.0085, 0.0095,
     0.0115, 0.013, 0.0155, 0.0195, 0.029, 0.066]
)  # fmt: skip
"""Quantiles 0, 2/31 ... 30/31 of the regulator's own moves |change of B:VIMIN| in this twin, in A."""


class Surroundings(NamedTuple):
    """The external influences on the regulation."""

    setting: Array  # B_VIMIN in A
    line: Array  # line frequency in mHz, without its mean
    line_speed: Array  # its change in the last cycle
    phase: Array  # of the Main Injector's ramp, in cycles
    slow: Array  # drift in A per cycle


def begin(xp: Namespace, rng: Rng, shape: tuple[int, ...] = ()) -> Surroundings:
    """Surroundings at a random time of day."""
    one, two = split(rng, 2)
    setting, line, speed, slow = normal(one, (4, *shape))
    return Surroundings(
        _within(xp, SETTING + SETTING_DRIFT * setting),
        LINE_DRIFT * line,
        LINE_STEP * speed,
        uniform(two, shape, 0.0, INJECTOR_PERIOD),
        SLOW * slow,
    )


def advance(xp: Namespace, rng: Rng, now: Surroundings) -> Surroundings:
    """The surroundings one cycle later."""
    one, two = split(rng, 2)
    speed, slow = normal(one, (2, *now.line.shape))
    coin = uniform(two, now.line.shape)
    change = xp.where(coin < SETTING_CHANGES, xp.where(2 * coin < SETTING_CHANGES, 1.0, -1.0), 0.0)
    speed = LINE_MEMORY * now.line_speed + math.sqrt(1 - LINE_MEMORY**2) * LINE_STEP * speed
    return Surroundings(
        _within(xp, now.setting + SETTING_STEP * change),
        (1 - LINE_DECAY) * now.line + speed,
        speed,
        (now.phase + 1) % INJECTOR_PERIOD,
        (1 - 1 / SLOW_CYCLES) * now.slow + SLOW * math.sqrt(2 / SLOW_CYCLES) * slow,
    )


def _within(xp: Namespace, setting: Array) -> Array:
    low, high = SETTING_LIMITS
    return xp.minimum(xp.maximum(setting, low), high)  # faster than clip for a single number


def injector_current(xp: Namespace, phase: Array) -> Array:
    """The Main Injector's bend current in A."""
    return xp.interp(phase % INJECTOR_PERIOD, xp.asarray(_KNOTS), xp.asarray(INJECTOR_RAMP))


def readings(xp: Namespace, now: Surroundings) -> tuple[Array, Array, Array]:
    """B:LINFRQ, I:IB and I:MDAT40, which announces the ramp one cycle ahead."""
    ahead = injector_current(xp, now.phase + BROADCAST_LEAD)
    return LINE + now.line, injector_current(xp, now.phase), ahead


def disturbance(xp: Namespace, rng: Rng, line: Array, injector: Array, slow: Array) -> Array:
    """The surroundings' effect on the deviation in a cycle that ends at ``injector`` A."""
    one, two = split(rng, 2)
    coin, kick = uniform(two, (2, *line.shape))
    random = NOISE * normal(one, line.shape) + xp.where(coin < KICKS, KICK * (2 * kick - 1), 0.0)
    return PER_LINE * line + PER_INJECTOR * (injector - INJECTOR) + slow + random


def respond(deviation: Array, correction: Array, disturbance: Array) -> Array:
    """The next deviation of the minimum from its setting, in A; the correction is VIMIN - setting."""
    return PERSISTENCE * deviation + GAIN * correction + disturbance


def error_signal(xp: Namespace, deviation: Array) -> Array:
    """B:IMINER, as recorded."""
    return QUANTUM * xp.round(10 * deviation / QUANTUM)


def regulated(setting: Array, iminer: Array, integral: Array) -> Array:
    """The published regulator: B:VIMIN for a given B:IMINER; ``integral`` is beta."""
    return setting - ALPHA * iminer - integral


def balance(line: Array) -> Array:
    """The regulator's integral in equilibrium with a constant line frequency."""
    return PER_LINE * line / GAIN
