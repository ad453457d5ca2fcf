#include "exarl_env.h"

int main(void)
{
    struct { double x; int64_t steps; } s = {0, 0};
    exarl_env *env = exarl_open();
    if (!env) return 1;
    exarl_box_observation(env, 1, NULL, NULL);
    exarl_discrete_action(env, 3);
    exarl_offer_state(env);
    for (;;) {
        switch (exarl_wait(env)) {
        case EXARL_RESET:
            s.x = (double)exarl_seed(env);
            s.steps = 0;
            exarl_observe(env, &s.x);
            break;
        case EXARL_STEP:
            s.x += exarl_choice(env);
            s.steps++;
            exarl_info(env, "steps", (double)s.steps);
            exarl_info(env, "twice x", 2 * s.x);
            exarl_result(env, &s.x, 1, 0, 0);
            break;
        case EXARL_GET_STATE:
            exarl_state(env, &s, sizeof s);
            break;
        case EXARL_SET_STATE:
            if (exarl_state_size(env) != sizeof s) {
                exarl_fail(env, "a state of another size");
                break;
            }
            memcpy(&s, exarl_state_bytes(env), sizeof s);
            exarl_done(env);
            break;
        default:
            exarl_close(env);
            return 0;
        }
    }
}
