"""From a configuration to a run: configure, build, play."""
