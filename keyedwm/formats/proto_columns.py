"""Running the linked programs of Protobuf messages over the bodies of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keyedwm.formats.columns import Column, Slots
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request, Stored
from keyedwm.formats.heads import Bodies
from keyedwm.formats.proto_kernels import Op, run_messages
from keyedwm.formats.proto_program import Program
from keyedwm.formats.spans import Literals, begins

_MOST_GROUPS = 100  # within each other, the limit of Google's runtime


@dataclass(frozen=True, eq=False)
class LinkedMessages:
    """Programs one behind the other, in the arrays that the loop reads."""

    programs: Sequence[Program]

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """The first level of each program."""
        return begins([len(program.levels) for program in self.programs])[:-1]

    @cached_property
    def literals(self) -> Literals:
        """The literals of all programs: names of symbols, then the texts that fields start with."""
        names = [name for program in self.programs for _, name in program.symbols]
        starts = [one.word for program in self.programs for level in program.levels for one in level.starts]
        return Literals(names + [word for word in starts if word is not None])

    @cached_property
    def symbols(self) -> NDArray[np.int64]:
        """The number of each symbol, and the number of its literal."""
        numbers = [number for program in self.programs for number, _ in program.symbols]
        return np.array([*enumerate(numbers)] or [(0, 0)], np.int64)[:, ::-1].copy()

    @cached_property
    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries of all levels, and the place where each level's entries begin."""
        symbols = begins([len(program.symbols) for program in self.programs])
        rows: list[tuple[int, ...]] = []
        for program, root, first_symbol in zip(self.programs, self.roots, symbols, strict=False):
            shifts = {Op.MESSAGE: int(root), Op.SYMBOL: int(first_symbol), Op.CLOSED_SYMBOL: int(first_symbol),
                     Op.CLEAR: int(first_symbol)}  # fmt: skip
            for level in program.levels:
                rows += [
                    (number, wire, op, slot, argument + shifts.get(Op(op), 0), count)
                    for number, wire, op, slot, argument, count in level.entries
                ]
        counts = [len(level.entries) for program in self.programs for level in program.levels]
        return np.array(rows or [(0,) * 6], np.int64), begins(counts)

    @cached_property
    def starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The start values of all levels (slot, 1 for a text, number, literal), and where each level's begin."""
        word = sum(len(program.symbols) for program in self.programs)
        rows: list[tuple[int, int, int, int]] = []
        counts = []
        for level in (level for program in self.programs for level in program.levels):
            counts.append(len(level.starts))
            for one in level.starts:
                rows.append((one.slot, int(one.word is not None), one.value, word))
                word += one.word is not None
        return np.array(rows or [(0,) * 4], np.int64), begins(counts)


def decode(
    linked: LinkedMessages, bodies: Bodies, which: NDArray[np.int32], requests: Sequence[Request]
) -> list[Column]:
    """Read the requested fields of some bodies, and add faults to `bodies.faults`.

    which: the number of each body's program, -1 for none. Returns for each request an Arrow array, or (ms, validity)
    for an event time.
    """
    layouts = [program.layouts for program in linked.programs]
    slots = Slots.empty(bodies, linked.literals, which, layouts, len(requests))
    depth = max([program.depth for program in linked.programs], default=1)
    run_messages(
        bodies.data, bodies.start, bodies.stop, which, linked.roots, *linked.entries, *linked.starts, linked.symbols,
        linked.literals.ends, slots.values, slots.until, slots.valid, bodies.faults,
        np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(_MOST_GROUPS, np.int64),
    )  # fmt: skip
    for number, program in enumerate(linked.programs):
        for slot, layout in program.layouts.items():
            if layout.stored is Stored.PARTS:  # the span is the whole value
                rows = (which == number) & (bodies.faults == Fault.NONE)
                slots.values[slot][rows], slots.until[slot][rows] = bodies.start[rows], bodies.stop[rows]
                slots.valid[slot][rows] = 1
    return slots.columns(requests)
