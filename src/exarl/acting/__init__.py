"""Stepping environments with a policy: batches of environments, blocks, rollouts, evaluation."""
