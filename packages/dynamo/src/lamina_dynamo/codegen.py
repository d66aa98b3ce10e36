"""Bytecode that rebuilds real objects from variable trackers.

The generated region has three parts, in this order: *loads* (outside values that are needed later, read before
anything changes, and
the graph's inputs), the graph call, and *body* (side effects, the frame's stack and locals). Trackers ask for values
while the body is
written; what they need from the other parts is collected on the way.
"""

from __future__ import annotations

from typing import Any

from .bytecode import Instruction
from .bytecode import versions as v
from .draws import DrawSource, save_streams
from .failed_graph import ERROR, emit_handler
from .graph_break import GraphBreak
from .guards.build import arg_names_of
from .roots import BuiltinSource, GlobalSource, GlobalsSource, LocalSource, ModuleSource
from .source import SelfDictSource, Source, TensorMetaSource
from .variables.base import VariableTracker

GIVEN = "__lamina_given"
"""The local of compiled code that holds the inputs of its graph: the first behind the arguments, filled by the hook."""

_FEWEST_GIVEN = 2


class Codegen:
    """Writes the code of one compiled frame. Locals that are only ours are named ``__lamina_…``."""

    def __init__(self, output: Any, code: Any):
        self.output = output
        self.side_effects = output.side_effects
        self.code = code
        self.body: list[Instruction] = []
        self.loads: list[Instruction] = []
        self.out = self.body
        self.temps: list[str] = []
        #: names of what random numbers are drawn into, and of the generators' state before
        self.drawn: dict[int, str] = {}
        self.state_before_draws: str | None = None
        self.known: dict[int, tuple[VariableTracker, str]] = {}
        self.sources: dict[Any, str] = {}
        self.graph_outputs: dict[Any, str] = {}
        self.output_nodes: list[Any] = []
        self.overwritten: set[str] = set()
        self.given: tuple[Source, ...] = ()
        self.handler: list[Instruction] = []
        #: containers whose changes are written: the builtin part of an object is reached by two ways
        self.replayed: set[VariableTracker] = set()
        self._busy: set[int] = set()
        self._unique = 0
        for one in output.draws_before:
            self.drawn[one.source.index] = self.new_temp("drawn")

    # -- instructions ---------------------------------------------------------------------------------------------

    def emit(self, opname: str, argval: Any = None, *, arg: int | None = None, flag: int = 0) -> None:
        self.out.append(Instruction(opname, argval, arg=arg, flag=flag))

    def new_temp(self, hint: str = "t") -> str:
        name = f"__lamina_{hint}{self._unique}"
        self._unique += 1
        self.temps.append(name)
        return name

    def load_const(self, value: Any) -> None:
        self.emit("LOAD_CONST", value)

    def load_local(self, name: str) -> None:
        self.emit("LOAD_DEREF" if name in self.code.co_cellvars else "LOAD_FAST", name)

    def store_local(self, name: str) -> None:
        self.emit("STORE_FAST", name)

    def load_deref(self, name: str) -> None:
        self.emit("LOAD_DEREF", name)

    load_free = load_deref

    def load_closure(self, name: str) -> None:
        self.emit("LOAD_FAST" if v.PY313 else "LOAD_CLOSURE", name)

    def load_global(self, name: str) -> None:
        self.emit("LOAD_GLOBAL", name)

    def load_global_alias(self, prefix: str, value: Any) -> None:
        self.emit("LOAD_CONST", value)

    def push_globals(self, table: dict[str, Any], own: dict[str, Any] | None = None) -> None:
        """Push a dict of globals. That of the frame the code runs in (``own``; the root's if not given) is asked for:
        as a constant it would keep alive what is in it, among that the function whose code this is.
        """
        if table is (self.output.root_tx.f_globals if own is None else own):
            self.push_function(globals)
            self.call_function(0)
        else:
            self.load_const(table)

    def load_attr(self, name: str) -> None:
        self.emit("LOAD_ATTR", name)

    def store_attr(self, name: str) -> None:
        """``stack[-1].name = stack[-2]``."""
        self.emit("STORE_ATTR", name)

    def binary_subscr(self) -> None:
        self.emit("BINARY_SUBSCR")

    def build(self, opname: str, n: int) -> None:
        self.emit(opname, arg=n)

    def dup(self) -> None:
        if v.PY311:
            self.emit("COPY", arg=1)
        else:
            self.emit("DUP_TOP")

    def swap(self, n: int = 2) -> None:
        if v.PY311:
            self.emit("SWAP", arg=n)
        elif n == 2:
            self.emit("ROT_TWO")
        else:
            raise GraphBreak("reconstruct", reason="swap below the second element")

    def pop(self) -> None:
        self.emit("POP_TOP")

    def store_temp(self) -> str:
        name = self.new_temp()
        self.emit("STORE_FAST", name)
        return name

    def load_temp(self, name: str) -> None:
        self.emit("LOAD_FAST", name)

    # -- calls ----------------------------------------------------------------------------------------------------

    def push_function(self, fn: Any) -> None:
        """Push a constant callable, ready for arguments and ``call_function``."""
        if v.PY313:
            self.emit("LOAD_CONST", fn)
            self.emit("PUSH_NULL")
        elif v.PY311:
            self.emit("PUSH_NULL")
            self.emit("LOAD_CONST", fn)
        else:
            self.emit("LOAD_CONST", fn)

    push_callable = push_function

    def make_callable(self) -> None:
        """The value on top of the stack is going to be called: put NULL where this Python wants it."""
        if v.PY313:
            self.emit("PUSH_NULL")
        elif v.PY311:
            self.emit("PUSH_NULL")
            self.emit("SWAP", arg=2)

    def call_function(self, n: int) -> None:
        if v.PY312:
            self.emit("CALL", arg=n)
        elif v.PY311:
            self.emit("PRECALL", arg=n)
            self.emit("CALL", arg=n)
        else:
            self.emit("CALL_FUNCTION", arg=n)

    def call_kw(self, n: int, names: tuple[str, ...]) -> None:
        """Call with ``n`` arguments in all, the last ones named."""
        if not names:
            self.call_function(n)
        elif v.PY313:
            self.emit("LOAD_CONST", tuple(names))
            self.emit("CALL_KW", arg=n)
        elif v.PY311:
            self.emit("KW_NAMES", tuple(names))
            self.call_function(n)
        else:
            self.emit("LOAD_CONST", tuple(names))
            self.emit("CALL_FUNCTION_KW", arg=n)

    # -- values ---------------------------------------------------------------------------------------------------

    def __call__(self, vt: VariableTracker) -> None:
        """Push the real object that ``vt`` stands for; the same object each time."""
        if getattr(vt, "is_realized", False):
            vt = vt.realize()
        known = self.known.get(id(vt))
        if known is not None:
            self.emit("LOAD_FAST", known[1])
            return
        source = vt.source
        if source is not None:
            self.push_source(source, early=True)
            return
        if not vt.has_identity and vt.is_python_constant():
            vt.reconstruct(self)
            return
        if id(vt) in self._busy:
            raise GraphBreak("reconstruct", reason=f"{vt.describe()} contains itself")
        effects = self.output.side_effects
        outermost = not self._busy and not effects.draining
        if outermost:
            effects.find_cycles([vt])
        self._busy.add(id(vt))
        try:
            vt.reconstruct(self)
        finally:
            self._busy.discard(id(vt))
        if id(vt) not in self.known and vt.has_identity:
            self.remember(vt)
        if outermost:
            # objects made empty on the way (cells, instances, containers on a cycle) get their contents now
            effects.drain(self)

    def whole(self, vt: VariableTracker) -> None:
        """Push an object that the next instructions look at: it and its class have all that they are to have."""
        self(vt)
        self.output.side_effects.drain(self)

    def remember(self, vt: VariableTracker) -> None:
        """The value on top of the stack is ``vt``'s object; it stays there."""
        name = self.new_temp("v")
        self.dup()
        self.emit("STORE_FAST", name)
        self.known[id(vt)] = (vt, name)

    def foreach(self, vts: Any) -> None:
        for vt in vts:
            self(vt)

    def push_source(self, source: Source, early: bool = False) -> None:
        """Push an outside value as it was at the start of the region."""
        if type(source) is LocalSource and not source.is_cell and source.local_name not in self.code.co_cellvars:
            self.emit("LOAD_FAST", source.local_name)
            return
        name = self.sources.get(source)
        if name is None:
            if type(source) is BuiltinSource or type(source) is GlobalSource:
                self.guard_presence(source)
            if self.out is self.loads:
                source.reconstruct(self)
                name = self.new_temp("s")
                self.dup()
                self.emit("STORE_FAST", name)
                self.sources[source] = name
                return
            previous, self.out = self.out, self.loads
            try:
                source.reconstruct(self)
                name = self.sources[source] = self.new_temp("s")
                self.emit("STORE_FAST", name)
            finally:
                self.out = previous
        self.emit("LOAD_FAST", name)

    source = push_source

    def guard_presence(self, source: BuiltinSource | GlobalSource) -> None:
        """A name that is only passed on has no other guard, and the program may handle its absence."""
        if type(source) is BuiltinSource:
            table: Source | None = SelfDictSource(ModuleSource("builtins"))
            name = source.builtin_name
        else:
            table, name = source.base or GlobalsSource(), source.global_name
        self.output.guard(table, "DICT_CONTAINS", name)

    def push_draw(self, source: DrawSource) -> None:
        """Push what was drawn at the start of the region."""
        self.emit("LOAD_FAST", self.drawn[source.index])

    def draw(self, can_go_back: bool) -> list[Instruction]:
        """Code of the draws, which come first. ``can_go_back``: the frame's own code may be run in place of the graph,
        and draw again."""
        draws = self.output.draws_before
        previous = self.out, self.loads, self.sources
        self.out = self.loads = []
        self.sources = {}
        before = [d for d in draws if not d.fresh]
        if can_go_back and before:
            self.push_function(save_streams)
            for one in before:
                one.method(self)
            self.call_function(len(before))
            self.emit("STORE_FAST", self.state_before_draws)
        for one in draws:
            one.emit(self)
            self.emit("STORE_FAST", self.drawn[one.source.index])
        code = self.out
        self.out, self.loads, self.sources = previous
        return code

    def graph_output(self, node: Any) -> None:
        """Push the value of a graph node."""
        self.output.check_node(node)
        name = self.graph_outputs.get(node)
        if name is None:
            name = self.graph_outputs[node] = self.new_temp("o")
            self.output_nodes.append(node)
        self.emit("LOAD_FAST", name)

    # -- putting the parts together -------------------------------------------------------------------------------

    def graph_call(self, fn: Any, inputs: list[tuple[Any, Any, Any]], region: Any = None) -> list[Instruction]:
        """The loads, the call of the compiled graph, its outputs into their temporaries. ``region``: what is run if
        the graph raises; its code is left in ``handler``."""
        if region is not None and self.output.draws_before:
            self.state_before_draws = self.new_temp("streams")
        previous, self.out = self.out, self.loads
        if fn is not None:
            start = len(self.loads)
            self.push_function(fn)
            sources = [source for _, _, source in inputs]
            if self.can_be_given(sources):
                self.given = tuple(sources)
                self.emit("LOAD_FAST", GIVEN)
                self.emit("DELETE_FAST", GIVEN)  # what the program drops later must not be kept alive here
                self.emit("CALL_FUNCTION_EX", arg=0)
            else:
                for source in sources:
                    self.push_source(source)
                self.call_function(len(inputs))
            if region is not None:
                self.handler = emit_handler(self, region, self.loads[start:])
                if not v.PY311:
                    self.loads.insert(start, Instruction("SETUP_FINALLY", target=self.handler[0]))
                    self.emit("POP_BLOCK")
                self.temps.append(ERROR)
            n = len(self.output_nodes)
            if n:
                self.emit("UNPACK_SEQUENCE", arg=n)
                for node in self.output_nodes:
                    self.emit("STORE_FAST", self.graph_outputs[node])
            else:
                self.emit("POP_TOP")
        self.out = previous
        return drop_unused_temps(self.draw(region is not None) + self.loads + self.body)

    def handler_depth(self) -> int:
        """Stack that the handler needs: the interpreter and ``PUSH_EXC_INFO`` push the exception and the one before."""
        return straight_line_depth(self.handler) + (3 if v.PY311 else 6) if self.handler else 0

    def can_be_given(self, sources: list[Source]) -> bool:
        """Whether the guard program, which walks to each of these values anyway, hands them over, in place of bytecode
        that fetches them a second time. Not worth it for plain locals alone."""
        far = sum(1 for s in sources if type(s) is not LocalSource or s.is_cell)
        if far < _FEWEST_GIVEN:
            return False
        seen = {g.source for g in self.output.guards if g.kind in ("TENSOR", "TYPE")}
        return all(s in seen or (type(s) is TensorMetaSource and s.base in seen) for s in sources)

    def varnames(self, *more: str) -> tuple[str, ...]:
        """Names of the locals of the new code: those of the old one, ours, and `more`."""
        names = self.code.co_varnames
        if self.given:
            n = len(arg_names_of(self.code))
            names = (*names[:n], GIVEN, *names[n:])
        return (*names, *self.temps, *more)


def drop_unused_temps(instructions: list[Instruction]) -> list[Instruction]:
    """Remove ``COPY 1; STORE_FAST t`` where ``t`` is never read, and ``STORE_FAST t; LOAD_FAST t`` of a single use."""
    reads: dict[str, int] = {}
    for inst in instructions:
        if inst.opname == "LOAD_FAST":
            reads[inst.argval] = reads.get(inst.argval, 0) + 1
    out: list[Instruction] = []
    i, n = 0, len(instructions)
    while i < n:
        inst = instructions[i]
        following = instructions[i + 1] if i + 1 < n else None
        if following is not None:
            name = following.argval
            if following.opname == "STORE_FAST" and isinstance(name, str) and name.startswith("__lamina_"):
                if (inst.opname == "DUP_TOP" or (inst.opname == "COPY" and inst.arg == 1)) and not reads.get(name):
                    i += 2
                    continue
            if (
                inst.opname == "STORE_FAST"
                and following.opname == "LOAD_FAST"
                and inst.argval == name
                and name.startswith("__lamina_")
                and reads.get(name) == 1
            ):
                i += 2
                continue
        out.append(inst)
        i += 1
    return out


def drop_temps(region: list[Instruction], but: str | None) -> list[Instruction]:
    """Forget what the straight-line code ``region`` keeps in its temporaries, except ``but``: what runs behind it would
    keep alive what the program drops."""
    held: dict[str, None] = {}
    for inst in region:
        if inst.opname == "STORE_FAST" and inst.argval.startswith("__lamina_"):
            held[inst.argval] = None
        elif inst.opname == "DELETE_FAST":
            held.pop(inst.argval, None)
    return [Instruction("DELETE_FAST", name) for name in held if name != but]


def straight_line_depth(instructions: list[Instruction]) -> int:
    """Largest stack depth that instructions without jumps reach, from an empty stack."""
    import dis

    depth = most = 0
    for inst in instructions:
        if inst.opcode >= v.HAVE_ARGUMENT:
            arg: int | None = inst.arg if inst.arg is not None else inst.flag
        else:
            arg = None
        depth += dis.stack_effect(inst.opcode, arg, jump=False)
        most = max(most, depth)
    return most
