"""Malformed messages against a running ``exarl serve-env``; benchmarks/fuzz_server.py sends 10,000."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("zmq")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_server.py"


def load(path: Path) -> ModuleType:
    """The benchmark as a module, though it lies in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_a_server_survives_what_it_is_sent() -> None:
    fuzz = load(SCRIPT)
    with fuzz.served() as (process, address):
        sender, good = fuzz.Sender(address, seed=5), fuzz.GoodClient(address)
        fuzz.bombard(sender, good, 100)
        before = fuzz.memory_mb(process.pid)
        fuzz.bombard(sender, good, 500)
        after = fuzz.memory_mb(process.pid)
        sender.close()
        assert process.poll() is None
        late = fuzz.GoodClient(address)
        late.play(5)
        late.close()
        good.close()
    assert process.returncode == 0, "SIGTERM ends it cleanly"
    assert sender.answers > 300
    assert good.steps > 20
    assert after - before < 8, "500 messages of up to 2 MB leave nothing behind"
