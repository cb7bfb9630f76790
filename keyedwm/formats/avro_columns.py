"""Running the linked programs of Avro schemas over the bodies of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keyedwm.formats.avro_kernels import Op, run_programs
from keyedwm.formats.avro_program import Program
from keyedwm.formats.columns import Column, Slots
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Bodies
from keyedwm.formats.spans import Literals, begins

# The most levels of records, and of lists, within each other.
_MOST_DEPTH = 1_024
_JUMPS = [int(op) for op in (Op.JUMP, Op.BLOCK, Op.LOOP, Op.CALL)]


@dataclass(frozen=True, eq=False)
class Linked:
    """Programs one behind the other, with the literals and constants that their steps name."""

    programs: Sequence[Program]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The place of each program's first step."""
        return begins([len(program.code) for program in self.programs])[:-1]

    @cached_property
    def code(self) -> NDArray[np.int32]:
        """The steps of all programs."""
        literals = begins([len(program.literals) for program in self.programs])
        constants = begins([len(program.constants) for program in self.programs])
        linked_codes = []
        for number, program in enumerate(self.programs):
            code = program.code.copy()
            code[np.isin(code[:, 0], _JUMPS), 1] += self.starts[number]
            code[np.isin(code[:, 0], [int(Op.SYMBOL), int(Op.WORD)]), 3] += literals[number]
            code[code[:, 0] == int(Op.CONSTANT), 3] += constants[number]
            linked_codes.append(code)
        return np.concatenate([*linked_codes, np.zeros((1, 4), np.int32)])

    @cached_property
    def literals(self) -> Literals:
        """The literals of all programs."""
        return Literals([word for program in self.programs for word in program.literals])

    @cached_property
    def constants(self) -> NDArray[np.int64]:
        """Two numbers for each constant."""
        pairs = [pair for program in self.programs for pair in program.constants]
        return np.array(pairs or [(0, 0)], np.int64)


def decode(linked: Linked, bodies: Bodies, which: NDArray[np.int32], requests: Sequence[Request]) -> list[Column]:
    """Read the requested fields of some bodies, and add faults to `bodies.faults`.

    which: the number of each body's program, -1 for none. Returns for each request an Arrow array, or (ms, validity)
    for an event time.
    """
    layouts = [program.layouts for program in linked.programs]
    slots = Slots.empty(bodies, linked.literals, which, layouts, len(requests))
    depths = np.zeros(_MOST_DEPTH, np.int64)
    if len(which):
        run_programs(
            bodies.data, bodies.start, bodies.stop, which, linked.starts, linked.code, linked.literals.ends,
            linked.constants, slots.values, slots.until, slots.valid, bodies.faults, depths, depths.copy(),
        )  # fmt: skip
    return slots.columns(requests)
