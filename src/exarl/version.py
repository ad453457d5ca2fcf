"""The version of EXARL, which checkpoints name too."""

__version__ = "0.2.0"
