"""Pure mathematics of learning, written over an array namespace ``xp`` (numpy or jax.numpy).

Time suffixes follow RLax: ``_tm1`` is the step an action was taken at, ``_t`` the one it led to.
"""
