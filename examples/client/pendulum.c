/* A pendulum that is driven by a motor, as a solver that owns its loop.
 *
 *     cc $(exarl include) -O2 -o pendulum pendulum.c -lm
 *     exarl train --agent SAC-v0 --env ExaClient-v0 --command ./pendulum --total_steps 10000
 *
 * The equations and the reward are those of Gymnasium's Pendulum-v1. The solver takes its own small time
 * steps; every tenth of them it asks which torque to apply from now on.
 */
#include <math.h>

#include "exarl_client.h"

enum { PARTS = 10, ACTIONS = 200 };

typedef struct {
    double angle, speed; /* 0: upright */
} pendulum;

/* Uniform in [0, 1); an own generator, so that a seed gives the same numbers everywhere. */
static double uniform(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void observe(const pendulum *p, double *x)
{
    x[0] = cos(p->angle);
    x[1] = sin(p->angle);
    x[2] = p->speed;
}

/* The solver's own loop, somewhere within which the torque is decided. */
static int swing(exarl_client *client, pendulum *p)
{
    const double pi = 3.14159265358979, dt = 0.05 / PARTS;
    double x[3], torque = 0;
    for (int step = 0; step < ACTIONS * PARTS; step++) {
        if (step % PARTS == 0) {
            observe(p, x);
            if (exarl_get_action(client, x, &torque, -1) <= 0) return 0;
            double away = remainder(p->angle, 2 * pi);
            exarl_log_reward(client, -(away * away + 0.1 * p->speed * p->speed + 0.001 * torque * torque));
        }
        p->speed += dt * (15 * sin(p->angle) + 3 * torque);
        p->speed = fmax(-8, fmin(8, p->speed));
        p->angle += dt * p->speed;
    }
    observe(p, x);
    return exarl_end_episode(client, x, 0, 1) > 0;
}

int main(void)
{
    const double high[3] = {1, 1, 8}, low[3] = {-1, -1, -8}, strongest = 2, weakest = -2;
    uint64_t random = 0;
    exarl_client *client = exarl_connect(NULL, 0);
    if (!client) return 1;
    exarl_box_observation(client->env, 3, low, high);
    exarl_box_action(client->env, 1, &weakest, &strongest);
    while (exarl_begin_episode(client) > 0) {
        pendulum p;
        if (exarl_seed(client->env) >= 0) random = (uint64_t)exarl_seed(client->env);
        p.angle = 3.14159265358979 * (2 * uniform(&random) - 1);
        p.speed = 2 * uniform(&random) - 1;
        if (!swing(client, &p)) break;
    }
    exarl_disconnect(client);
    return 0;
}
