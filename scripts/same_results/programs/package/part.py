"""A script that is a module of a package."""

import sys

from . import BASE


def worker(rank, world_size, torch):
    print(rank, world_size, BASE, sys.argv[1:])
