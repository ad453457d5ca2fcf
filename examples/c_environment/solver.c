/* A parallel solver in C, called from Python through ctypes.
 *
 * Build:  mpicc -O2 -shared -fPIC -o libsolver.so solver.c
 *
 * The communicator arrives as the integer that Fortran would use (comm.py2f() in mpi4py);
 * MPI_Comm_f2c converts it into a C handle. A Fortran solver uses the same integer directly.
 */
#include <mpi.h>

/* Pi by the midpoint rule; each rank of the group takes every size-th interval. */
double parallel_pi(int fortran_comm, long intervals)
{
    MPI_Comm comm = MPI_Comm_f2c((MPI_Fint)fortran_comm);
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);

    double part = 0.0, total = 0.0;
    for (long i = rank; i < intervals; i += size) {
        double x = (i + 0.5) / intervals;
        part += 4.0 / (1.0 + x * x);
    }
    part /= intervals;
    MPI_Allreduce(&part, &total, 1, MPI_DOUBLE, MPI_SUM, comm);
    return total;
}
