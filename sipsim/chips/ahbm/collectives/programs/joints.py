"""One load for small pieces of the source that lie beside each other, and one store for those of the result. Pure.

A command costs its issue, and small ones wait for each other in the memory, whatever their size; so pieces within
``JOINT_BYTES`` are loaded by one command, before the first of them is used, and stored by one when the last of them is
final. What lies between two of them is loaded, too, and dropped. A message is sent of its own piece as before.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.programs.program import NOWHERE, Instruction, Joint, Shards

JOINT_BYTES = 1024
"""They take a PE some 8 ns more than the first of them, and each further command 15 ns."""


class _Piece(NamedTuple):
    """Of an access: the instruction with that number in its program."""

    at: int
    length: int
    number: int


def with_joints(program: list[Instruction], spans: Shards, itemsize: int) -> list[Instruction]:
    """The program with its small accesses joined. ``spans``: elements of source and result of which all have
    addresses one after the other, in one memory; 0: all, or no such tensor.

    A value that is stored as it was loaded is loaded alone: else it lies among those beside it in the source, and a
    store of several takes values that lie beside each other as in the result.
    """
    loads = [
        _Piece(each.load_at, each.length, number)
        for number, each in enumerate(program)
        if each.load_at != NOWHERE and (each.combines or each.store_at == NOWHERE)
    ]
    stores = [
        _Piece(each.store_at, each.length, number) for number, each in enumerate(program) if each.store_at != NOWHERE
    ]
    most = JOINT_BYTES // itemsize
    found = list(program)
    for pieces in _groups(loads, spans.source, most, lambda gap: True):
        for number, joint in _joints(pieces):
            found[number] = found[number]._replace(load_with=joint)
    for pieces in _groups(stores, spans.result, most, lambda gap: gap == 0):
        for number, joint in _joints(pieces):
            found[number] = found[number]._replace(store_with=joint)
    return found


def _groups(pieces: list[_Piece], span: int, most: int, may_pass: Callable[[int], bool]) -> Iterable[list[_Piece]]:
    """Two pieces or more, in order of their places, within ``most`` elements of one span.

    ``may_pass``: whether so many elements between two pieces may be accessed, too.
    """
    group: list[_Piece] = []
    for piece in sorted(pieces):
        if group:
            first, last = group[0], group[-1]
            gap, stop = piece.at - last.at - last.length, piece.at + piece.length
            is_near = stop - first.at <= most and (not span or first.at // span == (stop - 1) // span)
            if gap < 0 or not may_pass(gap) or not is_near:
                yield from (group,) if len(group) > 1 else ()
                group = []
        group.append(piece)
    yield from (group,) if len(group) > 1 else ()


def _joints(pieces: list[_Piece]) -> Iterable[tuple[int, Joint]]:
    """Of each piece, by its instruction's number."""
    at, numbers = pieces[0].at, sorted(piece.number for piece in pieces)
    length = pieces[-1].at + pieces[-1].length - at
    return [(number, Joint(at, length, number == numbers[0], number == numbers[-1])) for number in numbers]
