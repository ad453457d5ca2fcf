"""A replay on the learner's device: rows go in, batches are drawn and updates made in one compiled
call, and only the rows of a block travel to the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from exarl.agents.algorithm import Hyper, TrainState
from exarl.agents.blocks import KNOWN
from exarl.agents.compiled import CompileObserver, jax, jnp
from exarl.agents.device_replay import DeviceRing, Store, added, empty
from exarl.agents.engine import Engine, with_weights
from exarl.agents.experience import count_known
from exarl.agents.offpolicy import OffPolicyConfig, beta_after
from exarl.errors import ConfigError
from exarl.types import Array, Arrays, Batch, Metrics


class DeviceReplay:
    """Owns the rows on the device; ``learn`` adds a block's and makes its updates.

    Update n draws with a key made of the seed and n, so that a restored replay goes on exactly. With
    priorities, rows are drawn in proportion to those at the block's beginning for all its updates,
    which are set after the last (of a row drawn twice the largest). A priority that is not finite
    counts as the largest so far.
    """

    joins_blocks = False  # the compiled call adds the rows of one block

    def __init__(
        self,
        engine: Engine,
        hyper: Hyper,
        acting: Callable[[TrainState], Sequence[Array]],
        observer: CompileObserver,
        seed: int,
        prior: Arrays | None = None,
        prior_share: int = 0,
    ) -> None:
        config = engine.algorithm.config
        assert isinstance(config, OffPolicyConfig)
        self._config, self._hyper, self._seed = config, hyper, seed
        self._store: Store | None = None
        self._prior = prior

        def learn(
            state: TrainState,
            store: Store,
            rows: Batch | None,
            first: Array,
            beta: Array,
            updates: int,
        ) -> tuple[TrainState, Store, Metrics]:
            if rows is not None:
                store = added(store, rows)
            numbers = (first, beta, updates, prior_share)
            state, store, metrics = engine.run_from_store(
                hyper, state, store, config.batch_size, *numbers
            )
            return state, store, with_weights(metrics, acting, state)

        self._add = jax.jit(added, donate_argnums=0)
        self._compiled = observer.jit(learn, donate=(0, 1), static=5)
        self._learn = observer.call(self._compiled)

    def pop_store(self, rows: Batch) -> Store:
        """The rows so far, or none like these, for a caller that gives back a store as ``keep``."""
        store, self._store = self._store or self.empty(rows), None
        return store

    def keep(self, store: Store) -> None:
        self._store = store

    def ready(self, rows: Arrays | None) -> bool:
        return (
            bool(self._prior)
            or count_known(rows) > 0
            or (self._store is not None and int(self._store.ring.size) > 0)
        )

    def add(self, rows: Arrays | None) -> None:
        assert rows is not None  # one learner alone always has a block
        self._store = self._add(self._store or self.empty(rows), rows)

    def learn(
        self,
        state: TrainState,
        rows: Arrays | None,
        updates: int,
        made: int,
        *,
        joined: bool = False,
    ) -> tuple[TrainState, Metrics]:
        like = rows if rows is not None else self._prior
        assert like is not None
        beta = beta_after(np, self._config, self._hyper, made)
        numbers = (np.int32(made), np.float32(beta))
        store = self._store or self.empty(like)
        state, self._store, metrics = self._learn(state, store, rows, *numbers, updates)
        return state, metrics

    def state(self) -> Arrays:
        """Everything needed to continue, as named arrays; only rows that are filled."""
        seed = {"seed": np.array(self._seed)}
        if self._store is None:
            return seed
        ring, _, mass, largest, _ = self._store
        size = int(ring.size)
        filled = {f"rows/{name}": np.asarray(array)[:size] for name, array in ring.rows.items()}
        counts = {"next": np.array(ring.next), "size": np.array(ring.size)}
        if mass is None:
            return {**seed, **counts, **filled}
        priorities = {"mass": np.asarray(mass)[:size], "largest": np.array(largest)}
        return {**seed, **counts, **filled, **priorities}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what ``state`` gave; ValueError if the replay had another capacity."""
        self._seed, self._store = int(arrays["seed"]), None
        if "size" not in arrays:
            return
        capacity = self._config.replay_capacity
        size, place = int(arrays["size"]), int(arrays["next"])
        if size > capacity or (size < capacity and place != size):
            raise ValueError(f"the stored replay had another capacity than {capacity}")
        stored = {n.removeprefix("rows/"): a for n, a in arrays.items() if n.startswith("rows/")}
        store = self.empty(stored)
        rows = {n: _filled(array, stored[n]) for n, array in store.ring.rows.items()}
        store = store._replace(ring=DeviceRing(rows, jnp.int32(place), jnp.int32(size)))
        if store.mass is not None:
            largest = jnp.float32(arrays["largest"])
            store = store._replace(mass=_filled(store.mass, arrays["mass"]), largest=largest)
        self._store = store

    def empty(self, rows: Batch) -> Store:
        """A store for rows like these; ConfigError when the device has no room for it."""
        cfg = self._config
        like = {name: jnp.asarray(array[:1]) for name, array in rows.items() if name != KNOWN}
        needed = cfg.replay_capacity * sum(array.nbytes for array in like.values())
        try:
            if needed > (free := free_bytes()):
                raise MemoryError(f"{free / 1e9:.3g} GB are free")
            store = empty(cfg.replay_capacity, like, cfg.priority_scale, self._seed)
            if self._prior is None:
                return store
            # copied, since the store's arrays are donated
            return store._replace(
                prior={n: jnp.array(a, copy=True) for n, a in self._prior.items()}
            )
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            raise ConfigError(
                f"replay_capacity={cfg.replay_capacity} needs {needed / 1e9:.3g} GB on the learner's"
                f" device ({error}): lower it, or use replay_device host"
            ) from error


def free_bytes() -> float:
    """What the first device has left; of a CPU the machine's memory."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _filled(array: Array, rows: np.ndarray) -> Array:
    """A device array like ``array``, its first rows being these."""
    whole = np.zeros(array.shape, array.dtype)
    whole[: len(rows)] = rows
    return jnp.array(whole, copy=True)
