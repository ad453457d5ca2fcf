"""An attack on EXARL by thousands of tries: kills, damaged files, hostile clients, bad environments.

See ``python -m benchmarks.attack --help``, from the root of the repository.
"""
