"""What several tests share: agents, environments, programs, jobs and runs to test with."""
