"""``fused`` beside a program written by hand for PPO on CartPole, in turns within one process.

    python benchmarks/fused_by_hand.py [--n_envs 2048 16384 131072] [--rounds 5] [--seconds 2]

The program by hand is one JAX function in the style of PureJaxRL: CartPole with a reset in every
step, two networks of 64 x 64 tanh, advantages by a scan, 4 epochs of 4 minibatches of shuffled rows,
the entropy's bonus, Adam on a clipped gradient. It knows no normalisation, truncation, checkpoints or
metrics but the mean return. Its orders of the rows are drawn by ``jax.random.permutation`` ("sorting")
or as ours are ("same orders"). Both sides launch an iteration before they read what the last one gave.
Rates are medians over rounds; the ratio is the median of the ratios of one round. On a CPU they are
per second of CPU time, so that other work on the machine does not count; with NPROC=1 XLA has one
thread.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from exarl.agents.compiled import jax, jnp, optax, shuffled
from exarl.envs.device import DeviceEnvs
from exarl.run.build import build_agent, build_episode
from exarl.run.configure import configure
from exarl.workflows.fused_program import FusedProgram

STEPS, EPOCHS, MINIBATCHES = 32, 4, 4
GAMMA, LAMBDA, CLIP, MAX_NORM = 0.98, 0.9, 0.2, 0.5
VALUE_SCALE, ENTROPY_SCALE = 0.5, 0.01
LIMIT = 500
LEARNING_RATE = 1e-3

Draw = Callable[[Any, int], Any]
"""A random order of so many rows, given a key."""


class State(NamedTuple):
    """All that an iteration by hand hands to the next."""

    params: Any
    optimizer: Any
    carts: Any  # [B, 4]
    lengths: Any  # [B]
    key: Any


class Step(NamedTuple):
    """One step of all environments, [B, ...]."""

    seen: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    done: Any
    length: Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n_envs", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side in each round")
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {jax.device_count()} device(s)\n")
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    print("| environments | fused, steps/s | by hand, sorting | by hand, same orders | ratios |")
    print("|---|---|---|---|---|")
    for n_envs in options.n_envs:
        sides = [
            ours(n_envs),
            by_hand(n_envs, jax.random.permutation),
            by_hand(n_envs, shuffled),
        ]
        for side in sides:
            jax.block_until_ready(next(side))  # compiles
        rates = [
            [n_envs * STEPS * rate(side, options.seconds, clock) for side in sides]
            for _ in range(options.rounds)
        ]
        medians = " | ".join(f"{statistics.median(side):,.0f}" for side in zip(*rates, strict=True))
        ratios = ", ".join(
            f"{statistics.median(found[0] / found[other] for found in rates):.2f}"
            for other in (1, 2)
        )
        print(f"| {n_envs:,} | {medians} | {ratios} |", flush=True)


def rate(side: Iterator[Any], seconds: float, clock: Callable[[], float]) -> float:
    """Iterations a second; none runs when this begins or returns."""
    started, count, before = clock(), 1, next(side)
    while clock() - started < seconds:
        launched, count = next(side), count + 1
        jax.device_get(before)
        before = launched
    jax.device_get(before)
    return count / (clock() - started)


def ours(n_envs: int) -> Iterator[Any]:
    """Launches an iteration of the workflow each time, and gives its report."""
    chosen = {"env": "CartPole-v1", "agent": "PPO-v0", "workflow": "fused", "epochs": EPOCHS}
    chosen |= {"minibatches": MINIBATCHES, "learning_rate": LEARNING_RATE, "total_steps": 10**12}
    chosen |= {"entropy_scale": ENTROPY_SCALE}
    configuration = configure(overrides=chosen)
    env, adapter, _ = build_episode(configuration)
    agent: Any = build_agent(configuration, adapter.spec)
    window = configuration.learner.reward_window
    envs = DeviceEnvs.of(env, adapter)
    program = FusedProgram.of(agent, envs, n_envs, STEPS, window)
    carry = jax.jit(program.start)(agent.first_params(0, agent.hyper), np.uint32(0), {})
    run = jax.jit(partial(program.iterate, updates=EPOCHS * MINIBATCHES), donate_argnums=0)
    for made in itertools.count(step=n_envs * STEPS):
        carry, report = run(carry, np.array(made, np.float32), np.array(True), {})
        yield report


def by_hand(n_envs: int, draw: Draw) -> Iterator[Any]:
    """Launches an iteration of the program by hand each time, and gives its mean return."""
    run = jax.jit(partial(iterate, draw=draw), donate_argnums=0)
    state = begin(n_envs)
    while True:
        state, mean = run(state)
        yield mean


# -- the program by hand ----------------------------------------------------------------------------


def begin(n_envs: int) -> State:
    networks, carts, key = jax.random.split(jax.random.key(0), 3)
    policy, value = jax.random.split(networks)
    params = {"policy": layers(policy, 2, 0.01), "value": layers(value, 1, 1.0)}
    first = jax.vmap(start)(jax.random.split(carts, n_envs))
    return State(params, adam().init(params), first, jnp.zeros(n_envs, jnp.int32), key)


def adam() -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(LEARNING_RATE, eps=1e-5))


def layers(key: Any, outputs: int, gain: float) -> list[tuple[Any, Any]]:
    sides, made = [(4, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, gain)], []
    for own, (rows, columns, scale) in zip(jax.random.split(key, 3), sides, strict=True):
        first = jax.nn.initializers.orthogonal(scale)(own, (rows, columns), jnp.float32)
        made.append((first, jnp.zeros(columns)))
    return made


def apply(network: list[tuple[Any, Any]], inputs: Any) -> Any:
    for weights, bias in network[:-1]:
        inputs = jnp.tanh(inputs @ weights + bias)
    weights, bias = network[-1]
    return inputs @ weights + bias


def start(key: Any) -> Any:
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def moved(cart: Any, action: Any) -> tuple[Any, Any]:
    """A cart after an action, and whether it has failed."""
    x, speed, angle, turning = cart
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * turning**2 * sin) / 1.1
    angular = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    linear = push - 0.05 * angular * cos / 1.1
    x, speed = x + 0.02 * speed, speed + 0.02 * linear
    angle, turning = angle + 0.02 * turning, turning + 0.02 * angular
    failed = (jnp.abs(x) > 2.4) | (jnp.abs(angle) > 12 * 2 * jnp.pi / 360)
    return jnp.stack([x, speed, angle, turning]), failed


def iterate(state: State, draw: Draw) -> tuple[State, Any]:
    state, steps, last = rolled(state)
    advantages = gae(steps, last)
    rows = (steps.seen, steps.action, steps.log_prob, advantages, advantages + steps.value)
    rows = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), rows)
    count = len(rows[1])

    def epoch(carry: tuple[Any, Any], key: Any) -> tuple[tuple[Any, Any], Any]:
        order = draw(key, count)
        batches = jax.tree.map(
            lambda array: array[order].reshape(MINIBATCHES, -1, *array.shape[1:]), rows
        )
        return jax.lax.scan(update, carry, batches)

    key, *keys = jax.random.split(state.key, EPOCHS + 1)
    (params, optimizer), _ = jax.lax.scan(epoch, (state.params, state.optimizer), jnp.stack(keys))
    mean = (steps.length * steps.done).sum() / jnp.maximum(steps.done.sum(), 1)
    return state._replace(params=params, optimizer=optimizer, key=key), mean


def rolled(state: State) -> tuple[State, Step, Any]:
    """The state after 32 steps of all environments, the steps, and the value of where they ended."""
    count = len(state.lengths)

    def step(world: tuple[Any, Any], key: Any) -> tuple[tuple[Any, Any], Step]:
        carts, lengths = world
        choosing, beginning = jax.random.split(key)
        logits = jax.nn.log_softmax(apply(state.params["policy"], carts))
        action = jax.random.categorical(choosing, logits)
        log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        value = apply(state.params["value"], carts)[:, 0]
        after, failed = jax.vmap(moved)(carts, action)
        lengths = lengths + 1
        done = failed | (lengths >= LIMIT)
        fresh = jax.vmap(start)(jax.random.split(beginning, count))
        made = Step(carts, action, log_prob, value, jnp.ones(count), done, lengths)
        return (jnp.where(done[:, None], fresh, after), jnp.where(done, 0, lengths)), made

    key, rolling = jax.random.split(state.key)
    world = (state.carts, state.lengths)
    (carts, lengths), steps = jax.lax.scan(step, world, jax.random.split(rolling, STEPS))
    last = apply(state.params["value"], carts)[:, 0]
    return state._replace(carts=carts, lengths=lengths, key=key), steps, last


def gae(steps: Step, last: Any) -> Any:
    def back(carry: tuple[Any, Any], step: Step) -> tuple[tuple[Any, Any], Any]:
        ahead, following = carry
        going_on = GAMMA * (1.0 - step.done)
        ahead = step.reward + going_on * following - step.value + going_on * LAMBDA * ahead
        return (ahead, step.value), ahead

    _, advantages = jax.lax.scan(back, (jnp.zeros_like(last), last), steps, reverse=True)
    return advantages


def update(carry: tuple[Any, Any], batch: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
    params, optimizer = carry
    loss, grads = jax.value_and_grad(objective)(params, batch)
    steps, optimizer = adam().update(grads, optimizer, params)
    return (optax.apply_updates(params, steps), optimizer), loss


def objective(params: Any, batch: tuple[Any, ...]) -> Any:
    seen, action, before, advantage, target = batch
    logits = jax.nn.log_softmax(apply(params["policy"], seen))
    log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
    value = apply(params["value"], seen)[:, 0]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob - before)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(jnp.exp(logits) * logits).sum(-1).mean()
    value_loss = 0.5 * ((value - target) ** 2).mean()
    return policy_loss + VALUE_SCALE * value_loss - ENTROPY_SCALE * entropy


if __name__ == "__main__":
    main()
