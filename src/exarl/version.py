"""The version of EXARL, which checkpoints name too."""

__version__ = "0.1.0"
