/* An environment that counts its steps, and misbehaves as it is told:
 *
 *     subject [ORDER N]     where at step N it does ORDER: exit, crash, hang, garbage, shape, fail, nan,
 *                           sleep (N milliseconds at each step), or print (N lines at the start)
 *
 * Observation: steps so far, resets so far, the seed.
 */
#include <signal.h>
#include <sys/select.h>

#include "exarl_env.h"

static void rest(long milliseconds)
{
    fd_set none;
    struct timeval time;
    FD_ZERO(&none);
    time.tv_sec = milliseconds / 1000;
    time.tv_usec = milliseconds % 1000 * 1000;
    select(0, &none, NULL, NULL, &time);
}

int main(int argc, char **argv)
{
    const char *order = argc > 2 ? argv[1] : "";
    long at = argc > 2 ? atol(argv[2]) : 0;
    double x[4] = {0, 0, 0, 0};
    exarl_env *env;
    for (long i = 0; i < at && strcmp(order, "print") == 0; i++) printf("line %ld\n", i);
    if (strcmp(order, "deaf") == 0) rest(60000);
    if (strcmp(order, "early") == 0) {
        fprintf(stderr, "no input file\n");
        return (int)at;
    }
    env = exarl_open();
    if (!env) return 1;
    exarl_box_observation(env, 3, NULL, NULL);
    exarl_discrete_action(env, 5);
    for (;;) {
        int asked = exarl_wait(env);
        if (asked == EXARL_RESET) {
            x[0] = 0;
            x[1]++;
            x[2] = (double)exarl_seed(env);
            if (strcmp(order, "badreset") == 0) {
                exarl_fail(env, "the mesh is tangled");
                continue;
            }
            exarl_observe(env, x);
        } else if (asked == EXARL_STEP) {
            int now = ++x[0] == at;
            if (strcmp(order, "sleep") == 0) rest(at);
            if (now && strcmp(order, "exit") == 0) {
                printf("diverged: residual 1e9\n");
                return 3;
            }
            if (now && strcmp(order, "crash") == 0) raise(SIGSEGV);
            if (now && strcmp(order, "hang") == 0) rest(60000);
            if (now && strcmp(order, "garbage") == 0) {
                exarl_write_(env, (const unsigned char *)"this is not a message at all", 28);
                continue;
            }
            if (now && strcmp(order, "shape") == 0) env->observation.value.dims[0] = 4;
            if (now && strcmp(order, "kind") == 0) {
                exarl_observe(env, x);
                continue;
            }
            if (now && strcmp(order, "fail") == 0) {
                exarl_fail(env, "the solver diverged");
                continue;
            }
            exarl_result(env, x, exarl_choice(env), 0, 0);
        } else {
            exarl_close(env);
            return 0;
        }
    }
}
