"""Placement in memory: lifetimes never overlap, peak, reuse."""

import torch
from check import run
from programs import Tracer

from lamina_inductor import config
from lamina_inductor.ir.program import ExternCall, Free, KernelCall, Reuse


def chain(n, size):
    x = torch.randn(size, size) * 0.1
    t = Tracer(x)
    y = x
    for _ in range(n):
        y = t.add(t.mm(t.tanh(y), x), 1.0)
    return t.finish(y), x


def test_arena_buffers_do_not_overlap_while_alive():
    gm, x = chain(6, 16)
    program = run(gm, [x], rtol=1e-3, atol=1e-4).program
    life = {}
    for k, step in enumerate(program.steps):
        names = step.args if isinstance(step, KernelCall) else ()
        if isinstance(step, ExternCall):
            names = [a.name for a in step.args if hasattr(a, "name")]
        for n in names:
            life.setdefault(n, [k, k])[1] = k
    placed = [(program.buffers[n], *span) for n, span in life.items() if program.buffers[n].arena is not None]
    assert placed
    for i, (a, a0, a1) in enumerate(placed):
        for b, b0, b1 in placed[i + 1 :]:
            if a0 <= b1 and b0 <= a1:
                size_a, size_b = (int(d.layout.span) * d.layout.itemsize for d in (a, b))
                assert a.arena + size_a <= b.arena or b.arena + size_b <= a.arena


def test_large_buffers_are_taken_over():
    gm, x = chain(6, 32)
    with config.patch(arena_bytes=0):
        program = run(gm, [x], rtol=1e-3, atol=1e-4).program
    assert any(isinstance(s, Reuse) for s in program.steps)
    assert program.arena_bytes == 0


def test_everything_temporary_is_freed_once():
    gm, x = chain(5, 32)
    with config.patch(arena_bytes=0):
        program = run(gm, [x], rtol=1e-3, atol=1e-4).program
    gone = [s.name if isinstance(s, Free) else s.old for s in program.steps if isinstance(s, (Free, Reuse))]
    assert len(gone) == len(set(gone))
    temps = {n for n, b in program.buffers.items() if b.kind == "temp"}
    assert temps <= set(gone)


def test_peak_does_not_grow_with_the_depth_of_a_chain():
    peaks = []
    for n in (3, 30):
        gm, x = chain(n, 16)
        peaks.append(run(gm, [x], rtol=1e-2, atol=1e-2).program.peak_bytes)
    assert peaks[0] == peaks[1]
