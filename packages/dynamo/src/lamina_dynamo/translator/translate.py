"""``translate``: one frame in, new bytecode and guards out."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import sys
from types import CodeType
from typing import Any

import torch

from .. import _torch, interruption
from ..backend_results import check_callable, checked
from ..backends import name_of
from ..bytecode import Instruction, assemble, copy_instructions, decode
from ..bytecode import versions as v
from ..codegen import Codegen, drop_temps, straight_line_depth
from ..errors import BackendCompilerFailed
from ..failed_graph import Region, is_repeatable, watched, written_inputs
from ..graph_break import GraphBreak
from ..inner_sizes import lets_sizes_go
from ..output_graph import OutputGraph
from ..parked import push_slot
from ..resume import (
    HANDLER_SLOT,
    NULL_SLOT,
    FrameExit,
    barren_breaks,
    begins_block,
    call_next_frame,
    cell_names,
    continue_code,
    edit_body,
    emit_state,
    resume_info,
    stub_depth,
)
from ..roots import ClosureSource, LocalSource
from ..source import CellContentsSource, Scope, Source
from ..variables.user_object import real_instance_dict
from .base import RestartTranslation, StopTranslation, Translator
from .opcodes import Opcodes

# A frame that was left at more places than this with nothing captured computes with something else than tensors (arrays
# of numpy, files): what is left of it runs in eager. What it calls is still captured.
_BARREN_BREAKS = 3

_MAX_RESTARTS = 64


@dataclasses.dataclass
class BreakRecord:
    """A graph break that happened: the table row, what was met, and the user's stack (innermost last)."""

    kind: Any
    detail: dict[str, Any]
    user_stack: list[tuple[CodeType, int | None]]
    message: str

    @property
    def user_line(self) -> str:
        from .base import line_of

        if not self.user_stack:
            return ""
        return line_of(*self.user_stack[-1]).strip()


@dataclasses.dataclass
class TranslationResult:
    """What ``translate`` found.

    ``code``: new code object, or None: run the original (``reason`` says why). ``guards``: assumptions under which
    the answer holds.
    ``given``: where the graph's inputs come from, in order, if the guard program hands them to the code.
    ``graphs``: captured GraphModules. ``breaks``: graph breaks met. ``has_breaks``: the code calls things that must
    be captured. ``continued``: the frame resumes after a break and nothing was captured before the next one: eager
    goes on, no graph is cut.
    """

    code: CodeType | None
    guards: list[Any]
    graphs: list[torch.fx.GraphModule] = dataclasses.field(default_factory=list)
    breaks: list[BreakRecord] = dataclasses.field(default_factory=list)
    has_breaks: bool = False
    continued: bool = False
    reason: str = ""
    globals: dict[str, Any] | None = None
    given: tuple[Source, ...] = ()
    instructions: int = 0
    restarts: int = 0
    compiled: list[Any] = dataclasses.field(default_factory=list)
    output: Any = None


def translate(
    code: CodeType,
    f_locals: dict[str, Any],
    f_globals: dict[str, Any],
    f_builtins: dict[str, Any],
    closure: tuple[Any, ...] = (),
    *,
    backend: Any,
    config: Any = None,
    frame_state: Any = None,
) -> TranslationResult:
    """Translate the frame about to run ``code`` with these arguments and compile its graphs with ``backend``.

    Raises BackendCompilerFailed if the backend raises. Nothing of the program is run and no state of it is changed.
    """
    return Translation(code, f_locals, f_globals, f_builtins, closure, backend, config, frame_state).run()


class Translation:
    """The attempts at one frame."""

    def __init__(
        self,
        code: Any,
        f_locals: Any,
        f_globals: Any,
        f_builtins: Any,
        closure: Any,
        backend: Any,
        config: Any,
        frame_state: Any,
    ):
        self.code = code
        self.f_locals = f_locals
        self.f_globals = f_globals
        self.f_builtins = f_builtins
        self.closure = closure
        self.backend = backend
        self.config = config
        self.frame_state = frame_state
        self.decisions: dict[Any, Any] = {}
        self.breaks: list[BreakRecord] = []
        self.restarts = 0

    def run(self) -> TranslationResult:
        break_at = -1
        record: BreakRecord | None = None
        candidates: list[int] = []
        with torch_state_kept() as kept:
            for self.restarts in range(_MAX_RESTARTS):
                kept.reset()
                output = OutputGraph(self.decisions, self.config, self.frame_state)
                kept.outputs[-1] = output
                output.break_at = break_at
                root = self.make_root(output)
                output.root_tx = root
                try:
                    try:
                        result = root.run()
                    except StopTranslation as stop:
                        assert record is not None
                        return self.finish_break(output, stop.chain, record)
                    return self.finish(output, root, result)
                except RestartTranslation:
                    break_at, record = -1, None
                    continue
                except (RecursionError, MemoryError) as e:
                    broken = GraphBreak("recursion", error=type(e).__name__)
                    found = record or BreakRecord(broken.kind, broken.detail, [(self.code, None)], str(broken))
                    return self.skip(output, found, str(broken))
                except GraphBreak as e:
                    if lets_sizes_go(output, e):
                        break_at, record = -1, None
                        continue
                    if e.whole:
                        return self.skip(output, BreakRecord(e.kind, e.detail, e.user_stack, str(e)), str(e))
                    if record is None or getattr(e, "counts", None):
                        new = BreakRecord(e.kind, e.detail, e.user_stack, str(e))
                        if record is None or break_at < 0:
                            record = new
                            candidates = list(getattr(e, "counts", []) or [])
                        elif getattr(e, "counts", None) and e.counts[-1] < break_at:  # type: ignore[attr-defined]
                            record = new
                            candidates = list(e.counts)  # type: ignore[attr-defined]
                    # A break met while code was generated: leave at the caller's instruction instead.
                    if not candidates:
                        return self.skip(output, record or BreakRecord(e.kind, e.detail, e.user_stack, str(e)), str(e))
                    break_at = candidates.pop()
                finally:
                    output.forget_trackers()
        return self.skip(output, record, "too many restarts")

    def make_root(self, output: OutputGraph) -> Translator:
        root = Opcodes(output, None, self.code, {}, self.f_globals, self.f_builtins, ())
        root.handled_exception = None
        output.current_tx = root
        output.scope = Scope(
            self.f_locals, self.f_globals, self.f_builtins, tuple(self.closure or ()), self.code.co_freevars
        )
        output.guard(None, "GLOBAL_STATE")
        code = self.code
        cells = dict(zip(code.co_freevars, self.closure))
        for name in code.co_freevars:
            cell = cells.get(name)
            if cell is not None:
                root.cells[name] = root.lazy(cell, ClosureSource(None, name))
        for name, value in self.f_locals.items():
            if name in cells and name not in code.co_varnames:
                continue
            root.symbolic_locals[name] = root.lazy(value, LocalSource(name, name in code.co_cellvars))
        return root

    def skip(self, output: OutputGraph, record: BreakRecord | None, reason: str) -> TranslationResult:
        breaks = [record] if record is not None else []
        return TranslationResult(
            None,
            list(output.all_guards()),
            breaks=breaks,
            has_breaks=True,
            continued=self.is_continued(output),
            reason=reason,
            instructions=output.count,
            restarts=self.restarts,
            output=output,
        )

    def check_generators(self, output: OutputGraph) -> None:
        """Generators that the program drops half-way must be real ones: dropping them runs code."""
        found = [g.child.f_code for g in output.generators if g.is_abandoned()]
        if found:
            self.decisions.update((("abandoned", code), True) for code in found)
            raise RestartTranslation

    # -- endings --------------------------------------------------------------------------------------------------

    def finish(self, output: OutputGraph, root: Translator, result: Any) -> TranslationResult:
        output.current_tx = root
        cg = Codegen(output, self.code)
        output.side_effects.codegen(cg, [result])
        self.leave_state(output, cg)
        cg(result)
        cg.emit("RETURN_VALUE")
        self.check_generators(output)
        if not output.op_count and not cg.output_nodes and not output.has_effects():
            # Nothing for a backend here: the original does the same.
            return TranslationResult(
                None,
                output.all_guards(),
                reason="no tensor operations",
                instructions=output.count,
                restarts=self.restarts,
                output=output,
            )
        graphs, compiled, region = self.compile(output, cg)
        prologue = self.prologue()
        new = assemble(
            self.code,
            prologue + region + cg.handler,
            varnames=cg.varnames(),
            stacksize=max(straight_line_depth(region), cg.handler_depth()) + 4,
        )
        return TranslationResult(
            new,
            output.all_guards(),
            graphs,
            given=cg.given,
            instructions=output.count,
            restarts=self.restarts,
            compiled=compiled,
            output=output,
        )

    def finish_break(self, output: OutputGraph, chain: list[Any], record: BreakRecord) -> TranslationResult:
        root = chain[0]
        output.current_tx = root
        in_resume = resume_info(self.code) is not None
        if not output.op_count and not self.worth_breaking(output, chain, record):
            return self.skip(output, record, record.message)
        exits = [FrameExit(tx, tx is chain[-1]) for tx in chain]
        cg = Codegen(output, self.code)
        live = [vt for e in exits for vt in e.live_trackers()]
        output.side_effects.codegen(cg, live)
        del live  # references to iterators are counted below
        self.leave_state(output, cg)

        # Inlined frames, innermost first: code of their continue functions.
        codes: list[CodeType | None] = [None] * len(exits)
        # Before 3.11 a frame's own cells cannot be replaced: its rest is a function over the region's cells, as inlined
        # frames' are.
        whole = not v.PY311 and bool(self.code.co_cellvars)
        for k in range(len(exits) - 1, -1 if whole else 0, -1):
            following = exits[k + 1] if k + 1 < len(exits) else None
            codes[k] = continue_code(
                exits[k], codes[k + 1] if following else None, following.tx.f_globals if following else None
            )
        state = None
        if whole or len(exits) > 1:

            def push_state(k: int) -> None:
                more = (lambda: push_state(k + 1)) if k + 1 < len(exits) else None
                emit_state(cg, exits[k], more)

            push_state(0 if whole else 1)
            state = cg.store_temp()
        if whole:
            cg.body += call_next_frame(exits[0], codes[0], self.f_globals, state)  # type: ignore[arg-type]
            cg.emit("RETURN_VALUE")
        else:
            self.rebuild_frame(cg, exits[0])
        self.check_generators(output)
        graphs, compiled, region = self.compile(output, cg)
        if not whole:
            region += drop_temps(region, state)

        body: list[Instruction] = []
        temps: tuple[str, ...] = ()
        if not whole:
            call = call_next_frame(exits[0], codes[1], exits[1].tx.f_globals, state) if state is not None else None  # type: ignore[arg-type]
            body, start, temps = edit_body(exits[0], copy_instructions(decode(self.code)), call, in_resume)
            body.insert(0, Instruction(v.UNCONDITIONAL_JUMP, target=start))
        new = assemble(
            self.code,
            self.prologue() + region + body + cg.handler,
            varnames=cg.varnames(*temps),
            stacksize=max(straight_line_depth(region) + stub_depth(self.code) + len(exits[0].slots), cg.handler_depth())
            + 4,
        )
        self.skip_codes([c for c in codes if c is not None])
        self.breaks.append(record)
        return TranslationResult(
            new,
            output.all_guards(),
            graphs,
            self.breaks,
            True,
            self.is_continued(output, tuple(chain)),
            record.message,
            given=cg.given,
            instructions=output.count,
            restarts=self.restarts,
            compiled=compiled,
            output=output,
        )

    def is_continued(self, output: OutputGraph, chain: tuple[Any, ...] = ()) -> bool:
        """No graph is cut: nothing was captured before the break, and eager was at work already."""
        if output.op_count:
            return False
        return resume_info(self.code) is not None or bool(chain) and all(map(_passes_on, chain)) and _eager_at_work()

    def worth_breaking(self, output: OutputGraph, chain: list[Any], record: BreakRecord) -> bool:
        """Nothing was captured before the break: is there something to capture after it?"""
        if len(chain) == 1 and begins_block(chain[0].current_instruction):
            return False  # the rest runs as it is
        if barren_breaks(self.code, chain[0].current_instruction.index) > _BARREN_BREAKS:
            return False
        values = list(self.f_locals.values())
        return any(_has_tensor(x, 2) for x in values)

    def skip_codes(self, codes: list[CodeType]) -> None:
        try:
            from ..eval_frame import skip_code
        except ImportError:
            return
        for code in codes:
            skip_code(code)

    # -- parts ----------------------------------------------------------------------------------------------------

    def prologue(self) -> list[Instruction]:
        out = []
        for inst in copy_instructions(decode(self.code)):
            if inst.opname in ("MAKE_CELL", "COPY_FREE_VARS", "RESUME"):
                out.append(inst)
                if inst.opname != "RESUME":
                    continue
            break
        return out

    def rebuild_frame(self, cg: Codegen, exit_: FrameExit) -> None:
        """The frame's stack and live locals as they are at the break."""
        tx = exit_.tx
        for depth, slot in enumerate(exit_.slots):
            if slot == NULL_SLOT:
                cg.emit("PUSH_NULL")
                continue
            push_slot(cg, tx, depth, exit_.locals)
            if slot == HANDLER_SLOT:
                cg.emit("PUSH_EXC_INFO")
                cg.emit("POP_TOP")
        stores = []
        for name in exit_.locals:
            vt = tx.symbolic_locals[name]
            source = vt.source
            if type(source) is LocalSource and source.local_name == name and not source.is_cell:
                continue
            cg(vt)
            stores.append(name)
        for name in cell_names(self.code):
            cell = tx.cells.get(name)
            if cell is None:
                continue
            source = cell.source
            if type(source) is ClosureSource and source.base is None and source.index == name:
                continue
            cg(cell)
            stores.append(name)
        for name in reversed(stores):
            cg.emit("STORE_FAST", name)
        for name in self.f_locals:
            if name in self.code.co_varnames and name not in tx.symbolic_locals and name not in cell_names(self.code):
                cg.emit("DELETE_FAST", name)

    def leave_state(self, output: OutputGraph, cg: Codegen) -> None:
        from ..variables.context import leave_state

        leave_state(output, cg)

    def compile(self, output: OutputGraph, cg: Codegen) -> tuple[list[Any], list[Any], list[Instruction]]:
        """Hand the graph to the backend; the instructions of the region."""
        if not cg.output_nodes and not output.has_effects() and not output.protected:
            return [], [], cg.graph_call(None, [])
        for node in output.root_graph.nodes:
            if "protected" in node.meta and (result := unused_result(node)) is not None:
                cg.graph_output(result)
                cg.pop()
        gm = output.module(cg.output_nodes)
        inputs = [real for _, real, _ in output.inputs]
        try:
            fn = self.backend(gm, inputs)
        except Exception as e:
            interruption.pass_on(e)
            raise BackendCompilerFailed(name_of(self.backend), e) from e
        check_callable(fn, name_of(self.backend), self.code)
        fn = _torch.settled_forward(fn)
        while (inner := getattr(fn, "unboxed", None)) is not None:  # down to what has nothing to add any more
            fn = inner
        if not getattr(self.backend, "keeps_contract", False):
            fn = checked(fn, name_of(self.backend), cg.output_nodes, self.code)
        region = None
        written = written_inputs(output)
        decides = output.protected or not output.side_effects.is_empty()
        if written is not None and is_repeatable(gm.graph):
            keeps = output.fallible and decides
            if keeps or not output.draws and not written:
                region = Region(self.code, decides)
            if not keeps:
                written = []
        if output.sets_state or region is not None and region.decides and (output.draws or written):
            draws = output.draws and region is not None
            fn = watched(fn, sets_state=output.sets_state, draws=draws, written=written or [])
        return [gm], [fn], cg.graph_call(disabled(fn), output.inputs, region)


def unused_result(node: torch.fx.Node) -> torch.fx.Node | None:
    """A tensor among what ``node`` gives, if nothing uses any of it."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return None if node.users else node
    parts = [n for n in node.users if n.target is operator.getitem]
    if len(parts) < len(node.users) or any(n.users for n in parts):
        return None
    return next((n for n in parts if isinstance(n.meta.get("val"), torch.Tensor)), None)


def _passes_on(tx: Translator) -> bool:
    """Is it the machinery of module calls, which returns what the call in it gives?"""
    at = tx.current_instruction.index + 1
    returns = at < len(tx.instructions) and tx.instructions[at].opname == "RETURN_VALUE"
    return returns and tx.f_globals.get("__name__") == "torch.nn.modules.module"


def _eager_at_work() -> bool:
    """Whether the frame was called by a captured one: in an instruction that runs in eager, then."""
    frame: Any = sys._getframe()
    while frame is not None:
        if any(name.startswith("__lamina_") for name in frame.f_code.co_varnames):
            return True
        frame = frame.f_back
    return False


def disabled(fn: Any) -> Any:
    """``fn`` so that nothing inside it is captured."""
    try:
        from .._eval_frame import Disabled
    except ImportError:
        return fn
    return Disabled(fn)


def _has_tensor(x: Any, depth: int) -> bool:
    """Whether a value holds a tensor near its surface; runs none of the program's code."""
    kind = type(x)
    if issubclass(kind, (torch.Tensor, torch.nn.Module)):
        return True
    if not depth or issubclass(kind, type):
        return False
    for builtin in (list, tuple, dict):
        if issubclass(kind, builtin):
            parts = dict.values(x) if builtin is dict else builtin.__iter__(x)
            return any(_has_tensor(i, depth - 1) for i in itertools.islice(parts, 100))
    attrs = real_instance_dict(x)
    return attrs is not None and any(
        issubclass(type(i), torch.Tensor) for i in itertools.islice(dict.values(attrs), 100)
    )


class torch_state_kept:
    """Global torch state (grad mode, autocast, inference mode) is followed for real while translating, and put back
    after."""

    def __enter__(self) -> torch_state_kept:
        from ..variables.context import outputs_under_translation

        self.grad = torch.is_grad_enabled()
        self.modes = _torch.open_modes()
        self.outputs = outputs_under_translation
        outputs_under_translation.append(None)
        return self

    def reset(self) -> None:
        from ..variables.context import restore_state

        restore_state()
        torch._C._set_grad_enabled(self.grad)
        _torch.leave_modes(self.modes)  # an exception out of a signal handler may have come between

    def __exit__(self, *exc: Any) -> None:
        self.outputs.pop()
        self.reset()


__all__ = ["BreakRecord", "CellContentsSource", "Translation", "TranslationResult", "translate"]
