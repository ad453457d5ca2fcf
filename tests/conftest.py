"""What tests of several folders share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Agents of one shape share their compiled updates, which take ten times longer to make than
    the toys to learn."""
    from exarl.agents.compiled import jax

    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
