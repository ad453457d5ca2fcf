/* The cart and pole of Barto, Sutton and Anderson (1983) as a program for EXARL.
 *
 *     cc $(exarl include) -O2 -o cartpole cartpole.c -lm
 *     exarl train --env ExaExternal-v0 --command ./cartpole --n_steps 500 --total_steps 50000
 *
 * The equations and constants are those of Gymnasium's CartPole-v1.
 */
#include <math.h>

#include "exarl_env.h"

typedef struct {
    double x, speed, angle, turning;
} cart;

/* Uniform in [0, 1); an own generator, so that a seed gives the same numbers everywhere. */
static double uniform(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void push(cart *c, int right)
{
    const double gravity = 9.8, pole_mass = 0.1, mass = 1.1, half_length = 0.5, dt = 0.02;
    double force = right ? 10.0 : -10.0;
    double sine = sin(c->angle), cosine = cos(c->angle);
    double push = (force + pole_mass * half_length * c->turning * c->turning * sine) / mass;
    double bending = (gravity * sine - cosine * push)
                     / (half_length * (4.0 / 3.0 - pole_mass * cosine * cosine / mass));
    double gain = push - pole_mass * half_length * bending * cosine / mass;
    c->x += dt * c->speed;
    c->speed += dt * gain;
    c->angle += dt * c->turning;
    c->turning += dt * bending;
}

int main(void)
{
    const double high[4] = {4.8, INFINITY, 0.42, INFINITY};
    const double low[4] = {-4.8, -INFINITY, -0.42, -INFINITY};
    uint64_t random = 0;
    cart c = {0, 0, 0, 0};
    exarl_env *env = exarl_open();
    if (!env) return 1;
    exarl_box_observation(env, 4, low, high);
    exarl_discrete_action(env, 2);
    for (;;) {
        switch (exarl_wait(env)) {
        case EXARL_RESET:
            if (exarl_seed(env) >= 0) random = (uint64_t)exarl_seed(env);
            c.x = 0.1 * uniform(&random) - 0.05;
            c.speed = 0.1 * uniform(&random) - 0.05;
            c.angle = 0.1 * uniform(&random) - 0.05;
            c.turning = 0.1 * uniform(&random) - 0.05;
            exarl_observe(env, &c);
            break;
        case EXARL_STEP: {
            push(&c, exarl_choice(env));
            int fallen = fabs(c.x) > 2.4 || fabs(c.angle) > 12 * 3.14159265358979 / 180;
            exarl_result(env, &c, 1.0, fallen, 0);
            break;
        }
        default:
            exarl_close(env);
            return 0;
        }
    }
}
