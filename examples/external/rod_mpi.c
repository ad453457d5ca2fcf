/* A heated rod, its cells distributed over the ranks of an MPI job, as a program for EXARL.
 *
 *     mpicc $(exarl include) -O2 -o rod_mpi rod_mpi.c -lm
 *     exarl train --env ExaExternal-v0 --command "mpiexec -n 2 ./rod_mpi" --total_steps 20000
 *
 * Rank 0 communicates with EXARL and broadcasts the requests. Heating the left end (action 1) or not
 * (action 0) should keep the mean temperature at 1, while the right end loses heat. Observation: the
 * mean temperature and the temperatures of both ends.
 */
#include <math.h>
#include <mpi.h>

#include "exarl_env.h"

enum { CELLS = 32, SUBSTEPS = 20, LIMIT = 100 }; /* CELLS per rank */

typedef struct {
    int rank, size;
    double t[CELLS + 2]; /* with a halo on either side */
} rod;

static void heat(rod *r, int on)
{
    const double k = 0.25, source = 0.06, loss = 0.1;
    int left = r->rank > 0 ? r->rank - 1 : MPI_PROC_NULL;
    int right = r->rank < r->size - 1 ? r->rank + 1 : MPI_PROC_NULL;
    for (int i = 0; i < SUBSTEPS; i++) {
        double old[CELLS + 2];
        r->t[0] = r->t[1];
        r->t[CELLS + 1] = r->t[CELLS];
        MPI_Sendrecv(&r->t[1], 1, MPI_DOUBLE, left, 0, &r->t[CELLS + 1], 1, MPI_DOUBLE, right, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&r->t[CELLS], 1, MPI_DOUBLE, right, 1, &r->t[0], 1, MPI_DOUBLE, left, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memcpy(old, r->t, sizeof old);
        for (int c = 1; c <= CELLS; c++)
            r->t[c] = old[c] + k * (old[c - 1] - 2 * old[c] + old[c + 1]);
        if (r->rank == 0 && on) r->t[1] += source;
        if (r->rank == r->size - 1) r->t[CELLS] -= loss * r->t[CELLS];
    }
}

/* Mean and both ends, on every rank. */
static void look(const rod *r, double seen[3])
{
    double part[3] = {0, 0, 0};
    for (int c = 1; c <= CELLS; c++) part[0] += r->t[c] / (CELLS * r->size);
    if (r->rank == 0) part[1] = r->t[1];
    if (r->rank == r->size - 1) part[2] = r->t[CELLS];
    MPI_Allreduce(part, seen, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    exarl_env *env = NULL;
    rod r;
    int steps = 0;
    int64_t asked[2] = {EXARL_CLOSE, 0};
    double seen[3];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    if (r.rank == 0) {
        env = exarl_open();
        if (!env) MPI_Abort(MPI_COMM_WORLD, 1);
        exarl_box_observation(env, 3, NULL, NULL);
        exarl_discrete_action(env, 2);
    }
    for (;;) {
        if (r.rank == 0) {
            asked[0] = exarl_wait(env);
            asked[1] = asked[0] == EXARL_RESET ? exarl_seed(env) : exarl_choice(env);
        }
        MPI_Bcast(asked, 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
        if (asked[0] == EXARL_RESET) { /* the seed determines the initial temperature */
            for (int c = 0; c < CELLS + 2; c++) r.t[c] = (double)(asked[1] % 1000) / 1000;
            steps = 0;
            look(&r, seen);
            if (r.rank == 0) exarl_observe(env, seen);
        } else if (asked[0] == EXARL_STEP) {
            heat(&r, (int)asked[1]);
            look(&r, seen);
            if (r.rank == 0) exarl_result(env, seen, -fabs(seen[0] - 1), 0, ++steps == LIMIT);
        } else {
            break;
        }
    }
    exarl_close(env);
    MPI_Finalize();
    return 0;
}
