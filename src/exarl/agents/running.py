"""Running moments: parameters of networks that follow the batches they learn from, without a gradient.

A loss takes a network's outputs from ``learned`` and reports the moments after its batch among its
metrics. The engine moves the parameters there, in a team by the mean over the learners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exarl.agents.algorithm import Algorithm, AlgorithmConfig, group, part
from exarl.errors import ConfigError
from exarl.networks.network import RUNNING, Network
from exarl.types import Array, Metrics, Namespace, Params


def learned(
    algorithm: Algorithm[AlgorithmConfig],
    xp: Namespace,
    params: Params,
    network: str,
    inputs: tuple[Array, ...],
    renormalise: bool | Array,
) -> tuple[Array, Metrics]:
    """The outputs of a network [N, outputs] for a batch of inputs (observations, and what is extra)
    that it learns from, and the running moments after it by their names in ``params``."""
    own: Any = algorithm.networks[network]
    outputs, after = own.learn(xp, part(params, network), *inputs, renormalise=renormalise)
    return outputs, {f"{network}/{name}": array for name, array in after.items()}


def is_running(name: str) -> bool:
    """Whether a parameter is a running moment."""
    return name.partition("/")[2].startswith(RUNNING)


def trained(params: Params, names: tuple[str, ...]) -> dict[str, Array]:
    """The parameters of these names that a gradient changes."""
    return {n: a for n, a in group(params, names).items() if not is_running(n)}


def moments(params: Params, names: tuple[str, ...]) -> dict[str, Array]:
    """The running moments of networks of these names."""
    return {n: a for n, a in group(params, names).items() if is_running(n)}


def check_batches(agent: str, algorithm: Algorithm[AlgorithmConfig]) -> None:
    """ConfigError when networks normalise batches and the algorithm does not follow them, or the
    other way round."""
    normalising = _normalising(list(algorithm.networks.values()))
    if normalising and not algorithm.follows_batches:
        raise ConfigError(f"{agent} keeps no running moments: leave batch_norm at none")
    if algorithm.follows_batches and not normalising:
        raise ConfigError(
            f"{agent} learns by the statistics of batches: take model_type MLP with batch_norm"
            " before or after"
        )


def _normalising(networks: Sequence[Network]) -> bool:
    return any(bool(getattr(network, "normalises_batches", False)) for network in networks)
