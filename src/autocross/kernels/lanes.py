"""Four models at a time, written as instructions on vectors: the compiler sees none in a loop over five models.

A machine with shorter registers does them in parts. The operations on each number are the same, and so are the bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

N = 4
FLOATS, INTS = ir.VectorType(ir.DoubleType(), N), ir.VectorType(ir.IntType(64), N)
PLACES = ir.VectorType(ir.IntType(32), N)


def _add_slopes(typing: Any, odds: Any, at: Any, y: Any, scaled: Any, learns: Any, row: Any, sums: Any, to: Any) -> Any:
    """Gradient and curvature of four models: those of odds[at:][:4] are added to sums[to:][:8], two for each model.

    Arrays are flat. ``learns[row:][:4]`` is 1.0 for a model that learns from the row, else 0.0.
    """

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def pointer(array: int, place: int, vector: Any) -> Any:
            data = context.make_array(signature.args[array])(context, builder, given[array]).data
            return builder.bitcast(builder.gep(data, [given[place]]), vector.as_pointer())

        def load(source: Any) -> Any:
            loaded = builder.load(source)
            loaded.align = 8
            return loaded

        def all_four(number: Any) -> Any:
            first = builder.insert_element(FLOATS(ir.Undefined), number, ir.IntType(32)(0))
            return builder.shuffle_vector(first, FLOATS(ir.Undefined), PLACES([0] * N))

        one, odd = FLOATS([1.0] * N), load(pointer(0, 1, FLOATS))
        q = builder.fdiv(one, builder.fadd(one, odd))
        p = builder.fmul(odd, q)
        scale = builder.fmul(all_four(given[3]), load(pointer(4, 5, FLOATS)))
        g = builder.fptosi(builder.fmul(scale, builder.fsub(p, all_four(given[2]))), INTS)
        h = builder.fptosi(builder.fmul(scale, builder.fmul(p, q)), INTS)
        for half, places in enumerate(([0, 4, 1, 5], [2, 6, 3, 7])):
            target = builder.gep(pointer(6, 7, INTS), [ir.IntType(64)(half)])
            builder.store(builder.add(load(target), builder.shuffle_vector(g, h, PLACES(places))), target).align = 8
        return context.get_dummy_value()

    return types.void(odds, types.int64, types.float64, types.float64, learns, types.int64, sums, types.int64), write


add_slopes: Any = intrinsic(_add_slopes)
