/* exarl_client.h: for a C, C++ or Fortran program that owns its loop (ExaClient-v0).
 *
 * With exarl_env.h, C99 and POSIX, no library. The program asks for an action when it needs one:
 *
 *     exarl_client *client = exarl_connect(NULL, 0);
 *     if (!client) return 1;
 *     exarl_box_observation(client->env, 4, NULL, NULL);
 *     exarl_discrete_action(client->env, 2);
 *     while (exarl_begin_episode(client) > 0) {
 *         start(exarl_seed(client->env));
 *         while (!over) {
 *             int64_t action;                     (of a box: an array of double)
 *             if (exarl_get_action(client, x, &action, -1) <= 0) break;
 *             advance(action);
 *             exarl_log_reward(client, reward);
 *         }
 *         exarl_end_episode(client, x, terminated, truncated);
 *     }
 *     exarl_disconnect(client);
 *
 * Only exarl_begin_episode and exarl_get_action wait for EXARL, the latter as long as it is told: a
 * program that cannot wait puts a fallback into the action first, which stays there if the answer is
 * late. exarl_info(client->env, "name", number) adds a number to what is sent next.
 * docs/external.md says more.
 */
#ifndef EXARL_CLIENT_H
#define EXARL_CLIENT_H

#include <poll.h>
#include <sys/time.h>

#include "exarl_env.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What exarl_get_action returns: 0 (EXARL_CLOSE) and EXARL_FAILED mean that EXARL is gone. */
enum { EXARL_IN_TIME = 1, EXARL_LATE = 2 };

typedef struct {
    exarl_env *env;         /* for exarl_box_observation and the like, exarl_seed, exarl_info */
    int running, told;      /* in an episode; its first observation was sent */
    uint64_t owed;          /* actions that have not come yet */
    double reward;          /* since the last observation */
    int other;              /* whether the last action was not EXARL's, */
    unsigned char *taken;   /* and which it was */
    unsigned char *unsent;  /* what EXARL has not read yet */
    size_t sent, waiting, capacity; /* of these: what was sent, where the rest ends, room for */
} exarl_client;

#ifndef EXARL_AHEAD
#define EXARL_AHEAD (64 << 20) /* bytes that may wait before the program waits for EXARL */
#endif

/* -- sending without waiting ------------------------------------------------------------------------ */

static double exarl_now_(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
}

static void exarl_flush_(exarl_client *client)
{
    int flags = MSG_DONTWAIT;
#ifdef MSG_NOSIGNAL
    flags |= MSG_NOSIGNAL;
#endif
    while (client->sent < client->waiting) {
        const unsigned char *next = client->unsent + client->sent;
        ssize_t put = send(client->env->out, next, client->waiting - client->sent, flags);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        client->sent = put < 0 ? client->waiting : client->sent + (size_t)put; /* < 0: it is gone */
    }
    client->sent = client->waiting = 0;
}

/* Whether EXARL has said something within some seconds (< 0: however long it takes). */
static int exarl_heard_(exarl_client *client, double seconds)
{
    double until = exarl_now_() + seconds;
    for (;;) {
        struct pollfd peer;
        double left = until - exarl_now_();
        int turn = seconds < 0 || left > 1e6 ? -1 : left <= 0 ? 0 : (int)(left * 1000) + 1;
        exarl_flush_(client);
        peer.fd = client->env->in;
        peer.events = (short)(POLLIN | (client->waiting ? POLLOUT : 0));
        peer.revents = 0;
        if (poll(&peer, 1, turn) > 0 && peer.revents & (POLLIN | POLLHUP | POLLERR)) return 1;
        if (seconds >= 0 && exarl_now_() >= until) return 0;
    }
}

static int exarl_post_(void *owner, const unsigned char *bytes, size_t count)
{
    exarl_client *client = (exarl_client *)owner;
    size_t left = client->waiting - client->sent;
    if (client->waiting + count > client->capacity) {
        size_t capacity = 2 * (left + count);
        unsigned char *unsent = (unsigned char *)exarl_memory_(capacity);
        if (left) memcpy(unsent, client->unsent + client->sent, left);
        free(client->unsent);
        client->unsent = unsent;
        client->capacity = capacity;
        client->sent = 0;
        client->waiting = left;
    }
    memcpy(client->unsent + client->waiting, bytes, count);
    client->waiting += count;
    exarl_flush_(client);
    return 0;
}

/* -- a program that owns its loop --------------------------------------------------------------------- */

EXARL_API void exarl_disconnect(exarl_client *client)
{
    double until = exarl_now_() + 5;
    if (!client) return;
    while (client->waiting && exarl_now_() < until) {
        struct pollfd peer;
        peer.fd = client->env->out;
        peer.events = POLLOUT;
        peer.revents = 0;
        poll(&peer, 1, 100);
        exarl_flush_(client);
    }
    exarl_close(client->env);
    free(client->taken);
    free(client->unsent);
    free(client);
}

/* Connect to the address of ExaClient-v0, "unix:PATH"; NULL: of the EXARL that started this program.
 * It tries for some seconds; NULL if that is in vain. */
EXARL_API exarl_client *exarl_connect(const char *address, double seconds)
{
    double until = exarl_now_() + seconds;
    exarl_client *client;
    exarl_env *env;
    if (!address) address = getenv("EXARL_ADDRESS");
    if (address && strcmp(address, "stdio") == 0) address = "";
    while (!(env = exarl_open_at_(address, exarl_now_() < until))) {
        if (!address || exarl_now_() >= until) return NULL;
        poll(NULL, 0, 100);
    }
    client = (exarl_client *)exarl_memory_(sizeof *client);
    memset(client, 0, sizeof *client);
    client->env = env;
    env->client = client;
    env->post = exarl_post_;
    return client;
}

static size_t exarl_action_size_(const exarl_client *client)
{
    return exarl_size_(&client->env->action.value);
}

/* Wait until EXARL wants an episode: 1; 0: it wants no more. exarl_seed has the seed, or -1. */
EXARL_API int exarl_begin_episode(exarl_client *client)
{
    if (client->running) return exarl_complain_("exarl_begin_episode before exarl_end_episode");
    for (;;) {
        exarl_heard_(client, -1);
        switch (exarl_wait(client->env)) {
        case EXARL_STEP: continue; /* the answer to an observation of the last episode */
        case EXARL_RESET:
            if (!(client->env->wanted & 16))
                return exarl_complain_("a program that owns its loop is used with ExaClient-v0");
            client->running = 1;
            client->told = client->other = 0;
            client->owed = 0;
            client->reward = 0;
            free(client->taken);
            client->taken = (unsigned char *)exarl_memory_(exarl_action_size_(client));
            return 1;
        case EXARL_CLOSE: return 0;
        default: return EXARL_FAILED;
        }
    }
}

/* Take note of late answers. */
static int exarl_drain_(exarl_client *client)
{
    exarl_flush_(client);
    while (client->owed && exarl_heard_(client, 0)) {
        int asked = exarl_wait(client->env);
        if (asked != EXARL_STEP) return asked == EXARL_CLOSE ? asked : EXARL_FAILED;
        client->owed--;
    }
    return 1;
}

/* Send an observation: the first of the episode, or what the last action led to. */
static int exarl_tell_(exarl_client *client, const void *observation, int terminated, int truncated)
{
    static const exarl_layout number = {EXARL_FLOAT64, 0, {0}}, two = {EXARL_UINT8, 1, {2}};
    const exarl_layout *layouts[6];
    const void *data[6];
    unsigned char ends[2];
    exarl_env *env = client->env;
    int known;
    if (!client->running) return exarl_complain_("this is for within an episode");
    known = exarl_drain_(client);
    while (known > 0 && client->waiting - client->sent > EXARL_AHEAD) {
        struct pollfd peer;
        peer.fd = env->out;
        peer.events = POLLIN | POLLOUT;
        peer.revents = 0;
        poll(&peer, 1, 100);
        known = exarl_drain_(client);
    }
    if (known <= 0) return known;
    if (client->told && client->other) {
        ends[0] = terminated != 0;
        ends[1] = truncated != 0;
        layouts[0] = &env->action.value;
        layouts[1] = &env->observation.value;
        layouts[2] = &number;
        layouts[3] = &two;
        data[0] = client->taken;
        data[1] = exarl_seen_(env, observation);
        data[2] = &client->reward;
        data[3] = ends;
        exarl_answer_(env, 22, 4, layouts, data);
    } else if (client->told) {
        exarl_result(env, observation, client->reward, terminated, truncated);
    } else {
        exarl_observe(env, observation);
    }
    env->infos = 0;
    env->name_bytes = 0;
    client->told = 1;
    client->other = 0;
    client->reward = 0;
    if (!terminated && !truncated) client->owed++;
    return 1;
}

/* Ask for the action for an observation, and wait some seconds for it (< 0: as long as it takes).
 * action is an int64_t of a discrete space, an array of double of a box. If the answer is in time, it
 * is put there: EXARL_IN_TIME. Else what is there stays, and EXARL is told that this is what was done:
 * EXARL_LATE. EXARL_CLOSE or EXARL_FAILED: EXARL has ended, or is gone. */
EXARL_API int exarl_get_action(exarl_client *client, const void *observation, void *action,
                               double seconds)
{
    double until = exarl_now_() + seconds;
    int told = exarl_tell_(client, observation, 0, 0);
    if (told <= 0) return told;
    while (client->owed) {
        double left = until - exarl_now_();
        int asked;
        if (!exarl_heard_(client, seconds < 0 ? -1 : left > 0 ? left : 0)) {
            memcpy(client->taken, action, exarl_action_size_(client));
            client->other = 1;
            return EXARL_LATE;
        }
        asked = exarl_wait(client->env);
        if (asked != EXARL_STEP) return asked == EXARL_CLOSE ? asked : EXARL_FAILED;
        client->owed--;
    }
    memcpy(action, client->env->chosen, exarl_action_size_(client));
    return EXARL_IN_TIME;
}

/* Tell EXARL which action is taken after an observation, without asking it; 1, or as exarl_get_action. */
EXARL_API int exarl_log_action(exarl_client *client, const void *observation, const void *action)
{
    int told = exarl_tell_(client, observation, 0, 0);
    if (told <= 0) return told;
    memcpy(client->taken, action, exarl_action_size_(client));
    client->other = 1;
    return 1;
}

/* Add to the reward of the last action. */
EXARL_API void exarl_log_reward(exarl_client *client, double reward) { client->reward += reward; }

/* End the episode: terminated by its own rules, or truncated by a limit; 1, or as exarl_get_action. */
EXARL_API int exarl_end_episode(exarl_client *client, const void *observation, int terminated,
                                int truncated)
{
    int told;
    if (!client->told) return exarl_complain_("exarl_end_episode before exarl_get_action");
    told = exarl_tell_(client, observation, terminated, truncated || !terminated);
    client->running = client->told = 0;
    return told;
}

/* -- for Fortran, which has no NULL and calls one function by one interface ------------------------- */

EXARL_API exarl_env *exarl_env_of(const exarl_client *client) { return client->env; }

EXARL_API exarl_client *exarl_connect_to(const char *address, double seconds)
{
    return exarl_connect(*address ? address : NULL, seconds);
}

EXARL_API int exarl_get_choice(exarl_client *client, const void *observation, int64_t *action,
                               double seconds)
{
    return exarl_get_action(client, observation, action, seconds);
}

EXARL_API int exarl_log_choice(exarl_client *client, const void *observation, const int64_t *action)
{
    return exarl_log_action(client, observation, action);
}

#ifdef __cplusplus
}
#endif

#endif
