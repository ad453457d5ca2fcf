"""Mutation run: small faults are put into a copy of the code, and the fast tests must notice them."""
