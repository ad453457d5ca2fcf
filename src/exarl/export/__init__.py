"""Export: what a trained policy computes, as plain data, and as files that other programs use."""

from exarl.export.c_header import to_c
from exarl.export.npz import from_npz, to_npz
from exarl.export.onnx_graph import to_onnx
from exarl.export.policy import Policy, evaluate

__all__ = ["Policy", "evaluate", "from_npz", "to_c", "to_npz", "to_onnx"]
