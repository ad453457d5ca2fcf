"""Starting things: the command line, mpiexec, threads a rank."""
