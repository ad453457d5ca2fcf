"""The five-line script: every parameter can be given on its command line.

python driver/driver.py --n_steps 100 --epsilon 0.1
mpiexec -n 3 python driver/driver.py --n_steps 100 --epsilon 0.1
"""

from mpi4py import MPI

import exarl

# MPI communicator
comm = MPI.COMM_WORLD
# Create learner
exa_learner = exarl.ExaLearner(comm)
# Run the learner
exa_learner.run()
