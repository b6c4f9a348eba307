"""Copies between host and device, and maps, by sums by hand; what waits for them, and what takes no time.

HBM has its two latencies: banks, rows and refresh have tests of their own.
"""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file

PLAIN = ("--set", "hbm.kind=null", "--check-invariants")
ONE_CUBE = ("--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1")
HEADER = """
import numpy as np

def idle(tl):
    pass

def worker(rank, world_size, torch):
    now = lambda: torch.ahbm.now_ps
"""
HOST, TAKE, DISPATCH, COUNT = 500, 500, 50, 20
LINK = Fraction(63)
"""GB/s between host and IO_CPU, which are bytes per ns."""
WIRE_PE, WIRE_IO, HOP, CROSSING = 0.05, 0.1, 1.25, 2 + 0.05 * 2 + 0.1
OUT, IN = 1 + WIRE_IO + 1 + WIRE_PE + 1, 1 + WIRE_PE + 1 + WIRE_PE + 1
"""IO_CPU, wire, router, wire, M_CPU; M_CPU, wire, router, wire, HBM."""


def lines(folder: Path, body: str, *flags: object) -> list[Any]:
    """Run a script; return the JSON documents that it prints."""
    text = HEADER + "".join(f"    {line}\n" for line in body.strip().splitlines())
    ran = finished(run(*flags, script_file(folder, text)))
    return [json.loads(line.text) for line in ran.outcome.lines]


def finished(ran: Run) -> Run:
    assert ran.outcome.error is None, ran.outcome.error
    return ran
