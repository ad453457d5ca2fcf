"""A try and its outcome."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    """One attack: ``what`` was done, and how EXARL ``broke``; empty when it held."""

    what: str
    broke: str = ""


@dataclass(frozen=True)
class Result:
    """An attempt with its class, its number and the seconds it took."""

    kind: str
    number: int
    attempt: Attempt
    seconds: float
