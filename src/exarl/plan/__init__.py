"""How fast a run will be before it is started: its costs, a simulation of it with a virtual clock, and
the layout to propose."""
