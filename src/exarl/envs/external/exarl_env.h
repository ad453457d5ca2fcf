/* exarl_env.h: makes a C, C++ or Fortran program an environment for EXARL (ExaExternal-v0).
 *
 * One header, C99 and POSIX, no library. EXARL starts the program and asks; the program answers:
 *
 *     exarl_env *env = exarl_open();
 *     if (!env) return 1;
 *     exarl_box_observation(env, 4, NULL, NULL);
 *     exarl_discrete_action(env, 2);
 *     for (;;) {
 *         switch (exarl_wait(env)) {
 *         case EXARL_RESET: start(exarl_seed(env)); exarl_observe(env, x); break;
 *         case EXARL_STEP:  advance(exarl_choice(env));
 *                           exarl_result(env, x, reward, terminated, truncated); break;
 *         default:          exarl_close(env); return 0;
 *         }
 *     }
 *
 * A program that can save its state calls exarl_offer_state before the loop, and has two more cases:
 *
 *         case EXARL_GET_STATE: exarl_state(env, &state, sizeof state); break;
 *         case EXARL_SET_STATE: if (exarl_state_size(env) != sizeof state) exarl_fail(env, "...");
 *                               else { memcpy(&state, exarl_state_bytes(env), sizeof state);
 *                                      exarl_done(env); } break;
 *
 * exarl_info(env, "name", number) adds a number to the answer that follows. A program in which only some
 * actions are allowed calls exarl_offer_mask before the loop, and exarl_action_mask before an answer.
 *
 * In an MPI program rank 0 alone does this, and broadcasts what it was asked. All functions are
 * static; define EXARL_EXTERN before including the header in one file to have them as symbols for
 * Fortran. What the functions that return int return is 0 when all is well. docs/external.md has the
 * bytes of the messages.
 */
#ifndef EXARL_ENV_H
#define EXARL_ENV_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "exarl_env.h is for little-endian machines"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef EXARL_EXTERN
#define EXARL_API
#elif defined(__GNUC__)
#define EXARL_API static __attribute__((unused))
#else
#define EXARL_API static
#endif

/* What exarl_wait returns. EXARL_CLOSE also means that EXARL is gone. */
enum {
    EXARL_FAILED = -1, EXARL_CLOSE = 0, EXARL_RESET = 1, EXARL_STEP = 2,
    EXARL_GET_STATE = 3, EXARL_SET_STATE = 4 /* only after exarl_offer_state */
};

/* Types of numbers in an array. */
enum { EXARL_UINT8 = 1, EXARL_INT64 = 2, EXARL_FLOAT32 = 3, EXARL_FLOAT64 = 4 };

enum { EXARL_MAX_DIMS = 8, EXARL_HEADER = 24, EXARL_MAX_INFO = 32, EXARL_MAX_NAMES = 1024 };

typedef struct { /* an array that travels */
    int type, ndim;
    uint64_t dims[EXARL_MAX_DIMS];
} exarl_layout;

typedef struct { /* a space: its kind, its values, and two arrays that describe it */
    int kind;
    exarl_layout value;
    unsigned char *first, *second;
} exarl_space;

typedef struct exarl_env {
    int in, out, is_socket;
    int (*post)(void *, const unsigned char *, size_t); /* of exarl_client.h: sends instead */
    void *client;
    char *about; /* what exarl_about has said, as JSON */
    uint64_t session;
    int64_t seed;
    exarl_space observation, action;
    unsigned char *buffer; /* the last message received */
    size_t capacity;
    const unsigned char *chosen; /* the action in it */
    const unsigned char *state;  /* or the state in it */
    size_t state_size;
    int has_state, extended; /* whether EXARL asks for extras */
    int64_t wanted;          /* which of them it understands */
    int infos;               /* numbers for the next answer, and their names */
    size_t name_bytes;
    double values[EXARL_MAX_INFO];
    char names[EXARL_MAX_NAMES];
    double *seen;            /* with masks: an observation and its mask, as they travel */
    int numbers, choices;    /* how many values of each */
    char *parts;             /* what these parts are, as JSON */
} exarl_env;

/* -- small things ------------------------------------------------------------------------------- */

static size_t exarl_item_(int type) { return type == EXARL_UINT8 ? 1 : type == EXARL_FLOAT32 ? 4 : 8; }

static uint64_t exarl_count_(const exarl_layout *layout)
{
    uint64_t count = 1;
    for (int i = 0; i < layout->ndim; i++) count *= layout->dims[i];
    return count;
}

static size_t exarl_size_(const exarl_layout *layout)
{
    return (size_t)exarl_count_(layout) * exarl_item_(layout->type);
}

static size_t exarl_padded_(size_t size) { return (size + 7) / 8 * 8; }

static int exarl_complain_(const char *what)
{
    fprintf(stderr, "exarl_env: %s\n", what);
    return EXARL_FAILED;
}

static void *exarl_memory_(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory) {
        exarl_complain_("not enough memory");
        exit(1);
    }
    return memory;
}

/* -- bytes ------------------------------------------------------------------------------------------ */

/* 0: all read, 1: the other side is gone. */
static int exarl_read_(exarl_env *env, unsigned char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t got = read(env->in, bytes, count);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 1;
        bytes += got;
        count -= (size_t)got;
    }
    return 0;
}

static int exarl_write_(exarl_env *env, const unsigned char *bytes, size_t count)
{
    if (env->post) return env->post(env->client, bytes, count);
    while (count > 0) {
#ifdef MSG_NOSIGNAL
        ssize_t put = env->is_socket ? send(env->out, bytes, count, MSG_NOSIGNAL)
                                     : write(env->out, bytes, count);
#else
        ssize_t put = write(env->out, bytes, count);
#endif
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return 1;
        bytes += put;
        count -= (size_t)put;
    }
    return 0;
}

static unsigned char *exarl_put_array_(unsigned char *at, const exarl_layout *layout, const void *data)
{
    size_t size = exarl_size_(layout);
    memset(at, 0, 8);
    at[0] = (unsigned char)layout->type;
    at[1] = (unsigned char)layout->ndim;
    memcpy(at + 8, layout->dims, 8 * (size_t)layout->ndim);
    at += 8 + 8 * layout->ndim;
    memcpy(at, data, size);
    memset(at + size, 0, exarl_padded_(size) - size);
    return at + exarl_padded_(size);
}

/* Send a message of n arrays. */
static int exarl_send_(exarl_env *env, int kind, int count, const exarl_layout *const *layouts,
                       const void *const *data)
{
    uint64_t length = 0;
    uint16_t arrays = (uint16_t)count;
    unsigned char *message, *at;
    int failed;
    for (int i = 0; i < count; i++)
        length += 8 + 8 * (uint64_t)layouts[i]->ndim + exarl_padded_(exarl_size_(layouts[i]));
    message = (unsigned char *)exarl_memory_(EXARL_HEADER + (size_t)length);
    memcpy(message, "EXRL", 4);
    message[4] = 1;
    message[5] = (unsigned char)kind;
    memcpy(message + 6, &arrays, 2);
    memcpy(message + 8, &env->session, 8);
    memcpy(message + 16, &length, 8);
    at = message + EXARL_HEADER;
    for (int i = 0; i < count; i++) at = exarl_put_array_(at, layouts[i], data[i]);
    failed = exarl_write_(env, message, (size_t)(at - message));
    free(message);
    return failed;
}

/* -- spaces ----------------------------------------------------------------------------------------- */

static void exarl_set_(exarl_space *space, int kind, const exarl_layout *layout)
{
    free(space->first);
    free(space->second);
    space->kind = kind;
    space->value = *layout;
    space->first = (unsigned char *)exarl_memory_(exarl_size_(layout));
    space->second = (unsigned char *)exarl_memory_(exarl_size_(layout));
}

static void exarl_box_(exarl_space *space, int n, const double *low, const double *high)
{
    exarl_layout layout = {EXARL_FLOAT64, 1, {0}};
    double infinity = 1e308 * 10;
    layout.dims[0] = (uint64_t)n;
    exarl_set_(space, 1, &layout);
    for (int i = 0; i < n; i++) {
        double bounds[2];
        bounds[0] = low ? low[i] : -infinity;
        bounds[1] = high ? high[i] : infinity;
        memcpy(space->first + 8 * i, &bounds[0], 8);
        memcpy(space->second + 8 * i, &bounds[1], 8);
    }
}

/* Observations are n doubles; low and high may be NULL for no bounds. */
EXARL_API void exarl_box_observation(exarl_env *env, int n, const double *low, const double *high)
{
    exarl_box_(&env->observation, n, low, high);
}

/* Observations are arrays of any type and shape, in C order, each number within [low, high]. */
EXARL_API int exarl_array_observation(exarl_env *env, int type, int ndim, const int *dims, double low,
                                      double high)
{
    exarl_layout layout = {EXARL_FLOAT64, 0, {0}};
    if (type < EXARL_UINT8 || type > EXARL_FLOAT64 || ndim < 0 || ndim > EXARL_MAX_DIMS)
        return exarl_complain_("exarl_array_observation: no such type or too many dimensions");
    layout.type = type;
    layout.ndim = ndim;
    for (int i = 0; i < ndim; i++) layout.dims[i] = (uint64_t)dims[i];
    exarl_set_(&env->observation, 1, &layout);
    for (uint64_t i = 0; i < exarl_count_(&layout); i++) {
        for (int second = 0; second < 2; second++) {
            unsigned char *at = second ? env->observation.second : env->observation.first;
            double bound = second ? high : low;
            int64_t whole = type == EXARL_INT64 ? (int64_t)bound : 0;
            float single = type == EXARL_FLOAT32 ? (float)bound : 0;
            if (type == EXARL_UINT8) at[i] = (unsigned char)bound;
            if (type == EXARL_INT64) memcpy(at + 8 * i, &whole, 8);
            if (type == EXARL_FLOAT32) memcpy(at + 4 * i, &single, 4);
            if (type == EXARL_FLOAT64) memcpy(at + 8 * i, &bound, 8);
        }
    }
    return 0;
}

/* Actions are n doubles; agents want them bounded. */
EXARL_API void exarl_box_action(exarl_env *env, int n, const double *low, const double *high)
{
    exarl_box_(&env->action, n, low, high);
}

/* Actions are one of 0 .. n - 1. */
EXARL_API void exarl_discrete_action(exarl_env *env, int n)
{
    exarl_layout layout = {EXARL_INT64, 0, {0}};
    int64_t count = n, start = 0;
    exarl_set_(&env->action, 2, &layout);
    memcpy(env->action.first, &count, 8);
    memcpy(env->action.second, &start, 8);
}

/* -- the conversation ---------------------------------------------------------------------------- */

EXARL_API void exarl_close(exarl_env *env)
{
    if (!env) return;
    if (env->in >= 0) close(env->in);
    if (env->out >= 0 && env->out != env->in) close(env->out);
    free(env->observation.first);
    free(env->observation.second);
    free(env->action.first);
    free(env->action.second);
    free(env->buffer);
    free(env->about);
    free(env->seen);
    free(env->parts);
    free(env);
}

/* Connect to EXARL; NULL, with a word on standard error unless it is to be quiet, if that fails. */
static exarl_env *exarl_open_at_(const char *address, int quiet)
{
    struct sockaddr_un peer;
    exarl_env *env;
    if (!address) {
        exarl_complain_("EXARL_ADDRESS is not set: EXARL starts this program (ExaExternal-v0)");
        return NULL;
    }
    env = (exarl_env *)exarl_memory_(sizeof *env);
    memset(env, 0, sizeof *env);
    env->in = env->out = -1;
    env->seed = -1;
    if (strcmp(address, "stdio") == 0) {
        fflush(stdout);
        env->in = dup(0);
        env->out = dup(1);
        if (env->in >= 0 && env->out >= 0 && dup2(2, 1) >= 0) return env; /* printing goes to stderr */
        exarl_complain_("standard input or output is closed");
    } else if (strncmp(address, "unix:", 5) != 0 || strlen(address + 5) >= sizeof peer.sun_path) {
        exarl_complain_("EXARL_ADDRESS is neither 'stdio' nor 'unix:PATH'");
    } else {
        memset(&peer, 0, sizeof peer);
        peer.sun_family = AF_UNIX;
        strcpy(peer.sun_path, address + 5);
        env->is_socket = 1;
        env->in = env->out = socket(AF_UNIX, SOCK_STREAM, 0);
        if (env->in >= 0 && connect(env->in, (struct sockaddr *)&peer, sizeof peer) == 0) return env;
        if (!quiet) exarl_complain_("cannot connect to EXARL_ADDRESS");
    }
    exarl_close(env);
    return NULL;
}

/* Connect to the EXARL that started this program; NULL, with a word on standard error, if none did. */
EXARL_API exarl_env *exarl_open(void) { return exarl_open_at_(getenv("EXARL_ADDRESS"), 0); }

/* Say that the simulation failed, instead of an answer; EXARL may ask for a reset. */
EXARL_API int exarl_fail(exarl_env *env, const char *text)
{
    exarl_layout number = {EXARL_INT64, 0, {0}}, words = {EXARL_UINT8, 1, {0}};
    const exarl_layout *layouts[2];
    const void *data[2];
    int64_t failed = 3;
    words.dims[0] = strlen(text);
    layouts[0] = &number;
    layouts[1] = &words;
    data[0] = &failed;
    data[1] = text;
    return exarl_send_(env, 8, 2, layouts, data);
}

/* An observation in the form in which it travels. */
static const void *exarl_seen_(exarl_env *env, const void *observation)
{
    if (!env->seen) return observation;
    memcpy(env->seen, observation, sizeof(double) * (size_t)env->numbers);
    return env->seen;
}

static int exarl_describe_(exarl_env *env)
{
    char *words = NULL;
    int failed;
    exarl_layout two = {EXARL_UINT8, 1, {2}}, number = {EXARL_INT64, 0, {0}}, text = {EXARL_UINT8, 1, {2}};
    const exarl_layout *layouts[7];
    const void *data[7];
    unsigned char kinds[2];
    int64_t offered = env->wanted & ((env->has_state ? 1 | 4 : 4) | (env->client ? 16 : 0));
    if (!env->observation.kind || !env->action.kind)
        return exarl_complain_("say what observations and actions are before the first exarl_wait");
    kinds[0] = (unsigned char)env->observation.kind;
    kinds[1] = (unsigned char)env->action.kind;
    layouts[0] = &two;
    data[0] = kinds;
    layouts[1] = layouts[2] = &env->observation.value;
    data[1] = env->observation.first;
    data[2] = env->observation.second;
    layouts[3] = layouts[4] = &env->action.value;
    data[3] = env->action.first;
    data[4] = env->action.second;
    layouts[5] = &number;
    data[5] = &offered;
    layouts[6] = &text;
    data[6] = "{}";
    if (env->parts && !env->extended) return exarl_complain_("this EXARL knows nothing of masks");
    if (env->about || env->parts) { /* the first without its last }, the second with it */
        size_t about = env->about ? strlen(env->about) - 1 : 0, parts = env->parts ? strlen(env->parts) : 0;
        words = (char *)exarl_memory_(about + parts + 2);
        if (env->about) memcpy(words, env->about, about);
        words[about] = env->about ? ',' : '{';
        if (env->parts) memcpy(words + about + 1, env->parts, parts);
        else words[about] = '}';
        text.dims[0] = about + 1 + parts;
        data[6] = words;
    }
    failed = exarl_send_(env, 2, env->extended ? 7 : 5, layouts, data);
    free(words);
    return failed;
}

/* Send an answer with room for two more arrays, which the numbers of exarl_info take. */
static int exarl_answer_(exarl_env *env, int kind, int count, const exarl_layout **layouts,
                         const void **data)
{
    exarl_layout text = {EXARL_UINT8, 1, {0}}, numbers = {EXARL_FLOAT64, 1, {0}};
    text.dims[0] = env->name_bytes;
    numbers.dims[0] = (uint64_t)env->infos;
    if (env->infos && env->wanted & 4) {
        layouts[count] = &text;
        data[count++] = env->names;
        layouts[count] = &numbers;
        data[count++] = env->values;
    }
    return exarl_send_(env, kind, count, layouts, data);
}

/* The data of a message's only array if it has this layout, else NULL. */
static const unsigned char *exarl_only_(const unsigned char *body, uint64_t length, int arrays,
                                        const exarl_layout *layout)
{
    size_t head = 8 + 8 * (size_t)layout->ndim;
    if (arrays != 1 || length != head + exarl_padded_(exarl_size_(layout))) return NULL;
    if (body[0] != layout->type || body[1] != layout->ndim) return NULL;
    if (memcmp(body + 8, layout->dims, 8 * (size_t)layout->ndim) != 0) return NULL;
    return body + head;
}

/* Wait until EXARL asks for something: EXARL_RESET, EXARL_STEP, EXARL_CLOSE, or EXARL_FAILED; also
 * EXARL_GET_STATE and EXARL_SET_STATE, after exarl_offer_state. */
EXARL_API int exarl_wait(exarl_env *env)
{
    static const exarl_layout seed = {EXARL_INT64, 0, {0}};
    exarl_layout bytes = {EXARL_UINT8, 1, {0}};
    unsigned char header[EXARL_HEADER];
    const unsigned char *data;
    uint64_t length;
    uint16_t arrays;
    env->infos = 0;
    env->name_bytes = 0;
    for (;;) {
        if (exarl_read_(env, header, sizeof header)) return EXARL_CLOSE;
        if (memcmp(header, "EXRL\001", 5) != 0) return exarl_complain_("not a message of version 1");
        memcpy(&arrays, header + 6, 2);
        memcpy(&env->session, header + 8, 8);
        memcpy(&length, header + 16, 8);
        if (length > (uint64_t)1 << 31) return exarl_complain_("a message that is too long");
        if (length > env->capacity) {
            free(env->buffer);
            env->buffer = (unsigned char *)exarl_memory_((size_t)length);
            env->capacity = (size_t)length;
        }
        if (exarl_read_(env, env->buffer, (size_t)length)) return EXARL_CLOSE;
        switch (header[5]) {
        case 1: /* HELLO; a number in it says what else EXARL understands */
            env->extended = arrays > 0 && length >= 16 && env->buffer[0] == EXARL_INT64;
            env->wanted = 0;
            if (env->extended) memcpy(&env->wanted, env->buffer + 8, 8);
            if (exarl_describe_(env)) return EXARL_FAILED;
            break;
        case 3: /* RESET */
            data = exarl_only_(env->buffer, length, arrays, &seed);
            if (!data) return exarl_complain_("a reset without a seed");
            memcpy(&env->seed, data, 8);
            return EXARL_RESET;
        case 5: /* STEP */
            env->chosen = exarl_only_(env->buffer, length, arrays, &env->action.value);
            if (!env->chosen) return exarl_complain_("an action of another shape");
            return EXARL_STEP;
        case 7: /* CLOSE */
            return EXARL_CLOSE;
        case 16: /* GET_STATE */
            if (!env->has_state) return exarl_complain_("a state that was not offered is asked for");
            return EXARL_GET_STATE;
        case 18: /* SET_STATE */
            bytes.dims[0] = 0;
            if (length >= 16) memcpy(&bytes.dims[0], env->buffer + 8, 8);
            if (bytes.dims[0] > length) return exarl_complain_("a state that is too long");
            env->state = exarl_only_(env->buffer, length, arrays, &bytes);
            if (!env->has_state || !env->state) return exarl_complain_("a state that is none");
            env->state_size = (size_t)bytes.dims[0];
            return EXARL_SET_STATE;
        default:
            return exarl_complain_("a message that is not for an environment");
        }
    }
}

/* The seed of the last reset, at least 0; -1: continue with the random numbers as they are. */
EXARL_API int64_t exarl_seed(const exarl_env *env) { return env->seed; }

/* The action of the last step, of a discrete space. */
EXARL_API int exarl_choice(const exarl_env *env)
{
    int64_t choice = -1;
    if (env->chosen && env->action.kind == 2) memcpy(&choice, env->chosen, 8);
    return (int)choice;
}

/* The i-th number of the action of the last step, of a box. */
EXARL_API double exarl_action(const exarl_env *env, int i)
{
    double number = 0;
    if (env->chosen && env->action.kind == 1 && i >= 0 && (uint64_t)i < env->action.value.dims[0])
        memcpy(&number, env->chosen + 8 * i, 8);
    return number;
}

/* Answer a reset. */
EXARL_API int exarl_observe(exarl_env *env, const void *observation)
{
    const exarl_layout *layouts[3];
    const void *data[3];
    layouts[0] = &env->observation.value;
    data[0] = exarl_seen_(env, observation);
    return exarl_answer_(env, 4, 1, layouts, data);
}

/* Answer a step; terminated: the episode ended by its rules, truncated: it was cut. */
EXARL_API int exarl_result(exarl_env *env, const void *observation, double reward, int terminated,
                           int truncated)
{
    static const exarl_layout number = {EXARL_FLOAT64, 0, {0}}, two = {EXARL_UINT8, 1, {2}};
    const exarl_layout *layouts[5];
    const void *data[5];
    unsigned char ends[2];
    ends[0] = terminated != 0;
    ends[1] = truncated != 0;
    layouts[0] = &env->observation.value;
    layouts[1] = &number;
    layouts[2] = &two;
    data[0] = exarl_seen_(env, observation);
    data[1] = &reward;
    data[2] = ends;
    return exarl_answer_(env, 6, 3, layouts, data);
}

/* -- extras: a program need not use them ------------------------------------------------------------ */

/* Add a number to the next exarl_observe or exarl_result, for info; at most EXARL_MAX_INFO of them. */
EXARL_API int exarl_info(exarl_env *env, const char *name, double value)
{
    size_t length = strlen(name), before = env->infos > 0;
    if (env->infos == EXARL_MAX_INFO || env->name_bytes + before + length > EXARL_MAX_NAMES)
        return exarl_complain_("exarl_info: too many numbers, or names that are too long");
    if (before) env->names[env->name_bytes++] = '\n';
    memcpy(env->names + env->name_bytes, name, length);
    env->name_bytes += length;
    env->values[env->infos++] = value;
    return 0;
}

static char *exarl_quoted_(char *at, const char *text)
{
    *at++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') *at++ = '\\';
        *at++ = (unsigned char)*text < ' ' ? ' ' : *text;
    }
    *at++ = '"';
    return at;
}

/* Say, before the first exarl_wait, something about this environment for people: "reward", "kJ/mol". */
EXARL_API void exarl_about(exarl_env *env, const char *name, const char *text)
{
    static const char start[] = "{\"about\":{";
    size_t before = env->about ? strlen(env->about) - 2 : sizeof start - 1; /* without the }} */
    char *about = (char *)exarl_memory_(before + 2 * (strlen(name) + strlen(text)) + 16), *at = about + before;
    memcpy(about, env->about ? env->about : start, before);
    if (env->about) *at++ = ',';
    at = exarl_quoted_(at, name);
    *at++ = ':';
    at = exarl_quoted_(at, text);
    memcpy(at, "}}", 3);
    free(env->about);
    env->about = about;
}

static char *exarl_bounds_(char *at, const char *name, const unsigned char *bounds, int n)
{
    at += sprintf(at, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        double bound;
        memcpy(&bound, bounds + 8 * i, 8);
        if (i) *at++ = ',';
        if (bound < -1e308 || bound > 1e308) at += sprintf(at, bound < 0 ? "\"-inf\"" : "\"inf\"");
        else at += sprintf(at, "%.17g", bound);
    }
    *at++ = ']';
    *at = 0;
    return at;
}

/* Say, before the first exarl_wait and after what observations and actions are, that only some actions
 * may be allowed; of exarl_box_observation and exarl_discrete_action. */
EXARL_API int exarl_offer_mask(exarl_env *env)
{
    exarl_space *space = &env->observation;
    exarl_layout wide = space->value;
    unsigned char *low = space->first, *high = space->second;
    int64_t choices = 0;
    double one = 1;
    int n = (int)wide.dims[0];
    char *at;
    if (env->parts || space->kind != 1 || wide.type != EXARL_FLOAT64 || wide.ndim != 1 || env->action.kind != 2)
        return exarl_complain_("exarl_offer_mask: once, after a box of observations and discrete actions");
    memcpy(&choices, env->action.first, 8);
    env->numbers = n;
    env->choices = (int)choices;
    at = env->parts = (char *)exarl_memory_(64 * (size_t)n + 256);
    at += sprintf(at, "\"observation\":{\"type\":\"Dict\",\"subspaces\":{\"observation\":{\"type\":\"Box\",");
    at += sprintf(at, "\"dtype\":\"float64\",\"shape\":[%d]", n);
    at = exarl_bounds_(at, "low", low, n);
    at = exarl_bounds_(at, "high", high, n);
    sprintf(at, "},\"action_mask\":{\"type\":\"MultiBinary\",\"n\":%d}}}}", env->choices);
    wide.dims[0] += (uint64_t)choices;
    space->first = space->second = NULL; /* kept until they are copied */
    exarl_set_(space, 1, &wide);
    memcpy(space->first, low, 8 * (size_t)n);
    memcpy(space->second, high, 8 * (size_t)n);
    env->seen = (double *)exarl_memory_(sizeof(double) * (size_t)wide.dims[0]);
    memset(space->first + 8 * n, 0, 8 * (size_t)choices);
    for (int i = 0; i < env->choices; i++) {
        memcpy(space->second + 8 * (n + i), &one, 8);
        env->seen[n + i] = 1;
    }
    free(low);
    free(high);
    return 0;
}

/* Say which of the n actions are allowed after the next observation: those that are not 0, at least one.
 * It holds until it is said again. */
EXARL_API int exarl_action_mask(exarl_env *env, const int *mask, int n)
{
    int some = 0;
    if (!env->seen || n != env->choices)
        return exarl_complain_("exarl_action_mask: after exarl_offer_mask, for all actions");
    for (int i = 0; i < n; i++) some |= mask[i];
    if (!some) return exarl_complain_("exarl_action_mask: no action is allowed");
    for (int i = 0; i < n; i++) env->seen[env->numbers + i] = mask[i] != 0;
    return 0;
}

/* Say, before the first exarl_wait, that this program can save and restore a running episode. */
EXARL_API void exarl_offer_state(exarl_env *env) { env->has_state = 1; }

/* Answer EXARL_GET_STATE: whatever bytes are needed to continue the episode later. */
EXARL_API int exarl_state(exarl_env *env, const void *bytes, size_t size)
{
    exarl_layout layout = {EXARL_UINT8, 1, {0}};
    const exarl_layout *layouts[1];
    layout.dims[0] = size;
    layouts[0] = &layout;
    return exarl_send_(env, 17, 1, layouts, &bytes);
}

/* With EXARL_SET_STATE: the bytes that exarl_state once sent, perhaps of another process, and how many
 * they are. They are valid until the next exarl_wait. */
EXARL_API const void *exarl_state_bytes(const exarl_env *env) { return env->state; }
EXARL_API size_t exarl_state_size(const exarl_env *env) { return env->state_size; }

/* Answer EXARL_SET_STATE. */
EXARL_API int exarl_done(exarl_env *env) { return exarl_send_(env, 19, 0, NULL, NULL); }

#ifdef __cplusplus
}
#endif

#endif
