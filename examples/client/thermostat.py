"""A room with a heater that cannot wait: a decision is due every 5 ms, with or without EXARL.

    exarl train --agent SAC-v0 --env ExaClient-v0 --command "python thermostat.py" --total_steps 10000

If the answer is late, for instance because EXARL is computing an update, the heater stays as it is.
"""

import time

import numpy as np
from gymnasium.spaces import Box

from exarl import ExaClient

PERIOD, DECISIONS, WANTED = 0.005, 100, 21.0

with ExaClient(Box(-50, 50, (2,), np.float64), Box(0, 1, (1,), np.float64)) as client:
    while client.begin_episode():
        rng = np.random.default_rng(client.seed)
        room, outside, late = rng.uniform(10, 25), rng.uniform(-5, 15), 0
        heater = np.zeros(1)
        due = time.monotonic()
        for _ in range(DECISIONS):
            left = due - time.monotonic() + PERIOD / 2
            seen = np.array([room - WANTED, outside])
            heater = client.get_action(seen, timeout=max(0, left), fallback=heater)
            late += not client.in_time
            room += 2 * heater[0] + 0.05 * (outside - room)
            client.log_reward(-abs(room - WANTED) - 0.1 * heater[0])
            due += PERIOD
            time.sleep(max(0, due - time.monotonic()))
        client.log_info(late=late)
        client.end_episode(np.array([room - WANTED, outside]), truncated=True)
