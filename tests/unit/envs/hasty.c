/* Cannot wait: asks with the limit and for as many steps as the command line says, and falls back to
 * action 2. After every step it sleeps for the milliseconds of the third word. */
#include "exarl_client.h"

int main(int argc, char **argv)
{
    double limit = argc > 1 ? atof(argv[1]) : -1, x = 0;
    int steps = argc > 2 ? atoi(argv[2]) : 5, pause = argc > 3 ? atoi(argv[3]) : 0;
    exarl_client *client = exarl_connect(argc > 4 ? argv[4] : NULL, 10);
    if (!client) return 1;
    exarl_box_observation(client->env, 1, NULL, NULL);
    exarl_discrete_action(client->env, 3);
    exarl_about(client->env, "reward", "in \"units\" of C:\\");
    exarl_about(client->env, "observation", "counts\nsteps");
    while (exarl_begin_episode(client) > 0) {
        int found = 1, late = 0;
        for (int step = 0; step < steps && found > 0; step++) {
            int64_t action = 2;
            x = step;
            found = exarl_get_action(client, &x, &action, limit);
            late += found == EXARL_LATE;
            if (found == EXARL_LATE && action != 2) return 2;
            exarl_log_reward(client, (double)action);
            exarl_log_reward(client, 0.5);
            if (pause) poll(NULL, 0, pause);
        }
        if (found <= 0) break;
        x = steps;
        exarl_info(client->env, "late", late);
        if (exarl_end_episode(client, &x, 1, 0) <= 0) break;
    }
    exarl_disconnect(client);
    return 0;
}
