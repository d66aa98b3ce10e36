"""The graph being recorded: inputs, nodes, guards and what the whole translation shares."""

from __future__ import annotations

import operator
import os
from typing import Any

import torch
import torch.fx

from . import _torch, interruption
from . import fake as fakes
from .draws import Draw, is_drawn
from .graph_break import GraphBreak, leave_whole
from .guards import Guard
from .inner_sizes import keeps_sizes
from .roots import ConstantSource, ModuleSource
from .source import AttrSource, SelfDictSource
from .unknown_sizes import shows_unknown
from .variables.base import VariableTracker
from .variables.constant import CONSTANT_TYPES

_TORCH = os.path.dirname(torch.__file__) + os.sep

# Nobody gives these modules names of builtins later.
_SETTLED = ("torch", "lamina", "transformers", "timm", "collections", "contextlib", "functools", "enum", "numpy")

_QUIET_RESULTS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)


class OutputGraph:
    """One attempt at translating a frame. ``decisions`` survives restarts; everything else is made anew."""

    def __init__(self, decisions: dict[Any, Any], config: Any, frame_state: Any = None):
        from .side_effects import SideEffects
        from .stamps import Stamps
        from .variables.backward import Gradients
        from .variables.builder import Builder

        self.decisions = decisions
        #: generators made inside
        self.generators: list[Any] = []
        self.config = config
        self.frame_state = frame_state
        self.graph: torch.fx.Graph = torch.fx.Graph()
        self.root_graph = self.graph
        # Graphs of bodies that are closed, and the ones being translated: the decision to take back if a tensor of a
        # body turns up outside it.
        self.bodies: dict[torch.fx.Graph, Any] = {}
        self.body_marks: list[Any] = []
        self.module_attributes: dict[str, Any] = {}
        self.inputs: list[tuple[torch.fx.Node, Any, Any]] = []
        #: random numbers of Python and numpy that are drawn before the graph runs
        self.draws_before: list[Draw] = []
        self.guards: list[Guard] = []
        #: trackers of attributes that nothing may have looked at
        self.unread: list[Any] = []
        self._guard_keys: set[Any] = set()
        #: `_modules` dicts whose contents were listed ahead
        self.walked_members: set[VariableTracker] = set()
        #: (id of a code object, line) -> (the code object, its stack entry)
        self._user_stacks: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
        #: (class, name) -> (class of its MRO that has the attribute, the raw attribute), or None
        self.class_lookups: dict[tuple[type, str], tuple[type, Any] | None] = {}
        #: trackers of objects that were keys by identity
        self.told_apart: dict[Any, None] = {}
        #: (class, name of a special method) that were looked up on objects from outside
        self.special_lookups: set[tuple[type, str]] = set()
        self.globals_seen: dict[tuple[int, str], VariableTracker] = {}
        self._globals_sources: dict[int, Any] = {}
        self.builtin_names: set[Any] = set()
        self.count = 0
        self.break_at = -1
        self.current_tx: Any = None
        #: the stack of guards that are recorded for a stamped call: where the call it copies assumed the same
        self.assumed_at: tuple[Any, ...] | None = None
        self.root_tx: Any = None
        self.inline_limit = getattr(config, "inline_depth", 256)
        self.instruction_limit = config.max_instructions
        #: instructions after which a loop asks whether to go on: first whether there is an operator at all
        self.patience = self.instruction_limit // 20
        self.module_stack: dict[str, Any] = {}
        self._module_stack_copy: dict[str, Any] | None = None
        self.side_effects = SideEffects(self)
        self.builder = Builder(self)
        self.mode = fakes.FakeMode()
        self._tracked: list[fakes.Fake] = []
        self.op_count = 0
        self.graph_state: dict[Any, Any] = {}
        self._symbols: Any = None
        self._numbers: dict[Any, Any] = {}
        fakes.use_shape_env(None)
        self.context_stack: list[Any] = []
        self.sets_state = False
        #: Does the graph draw random numbers? Are there ops in it that may refuse values, and is one of them inside a
        #: block of the program that would notice?
        self.draws = False
        self.fallible = False
        self.protected = False
        #: Does anything that the program has met take part in __torch_function__? Then calls ask `torch_function`.
        self.overrides = False
        self.looks_up = False  # positions in score functions are tensors that index others
        self.overrides_off = 0
        self.function_modes: list[Any] = []
        self.initial_grad_mode = torch.is_grad_enabled()
        #: the frame's state before its first instruction; set by the translation
        self.scope: Any = None
        self.stamps = Stamps(self)
        self.gradients = Gradients()
        #: ids of the code objects in whose calls sizes that only the run knows were captured; see `inner_sizes`
        self.sizes_kept: set[int] = set()

    # -- guards -------------------------------------------------------------------------------------------------

    def guard(self, source: Any, kind: str, value: Any = None) -> None:
        """Record an assumption about the value at ``source``; see ``guards.kinds`` for the kinds."""
        if source is None and kind != "GLOBAL_STATE":
            return
        if self.draws_before and is_drawn(source):
            return  # what is drawn has the type that the draw gives, and nothing was concluded from its value
        key: Any
        if kind == "ID":  # the object may be half made: nothing of it is looked at
            key = (source, kind, id(value))
        else:
            try:
                key = (source, kind, type(value), value)
                hash(key)
            except Exception:
                key = (source, kind, id(value))
        if key in self._guard_keys:
            return
        self._guard_keys.add(key)
        self.guards.append(Guard(source, kind, value, self.user_stack()))

    def user_stack(self) -> tuple[Any, ...]:
        """The current line; before it, where that lies inside torch, the line outside of torch that led there."""
        if self.assumed_at is not None:
            return self.assumed_at
        tx = self.current_tx
        if tx is None:
            return ()
        code, line = tx.f_code, tx.current_instruction.line or 0
        while tx is not None and tx.f_code.co_filename.startswith(_TORCH):
            tx = tx.parent
        own, own_line = (code, line) if tx is None else (tx.f_code, tx.current_instruction.line or 0)
        # not the code objects: their hash is that of the bytecode, computed each time
        key = (id(code), line, id(own), own_line)
        found = self._user_stacks.get(key)
        if found is None:
            stack = ((own.co_filename, own_line, own.co_name), (code.co_filename, line, code.co_name))
            found = self._user_stacks[key] = (code, own, stack if own is not code else stack[1:])
        return found[2]

    def globals_source(self, tx: Any) -> Any:
        """The globals dict of an inlined function, as a source."""
        key = id(tx.f_globals)
        found = self._globals_sources.get(key)
        if found is None:
            name = tx.f_globals.get("__name__")
            import sys

            module = sys.modules.get(name) if isinstance(name, str) else None
            source = getattr(tx.function, "source", None)
            if module is not None and getattr(module, "__dict__", None) is tx.f_globals:
                found = SelfDictSource(ModuleSource(name))
            elif source is not None:
                found = AttrSource(source, "__globals__")
            else:
                found = ConstantSource(f"globals of {tx.f_code.co_name}", tx.f_globals)
            self._globals_sources[key] = found
        return found

    def guard_builtin_name(self, tx: Any, name: str) -> None:
        key = (id(tx.f_globals), name)
        if key in self.builtin_names:
            return
        self.builtin_names.add(key)
        module = tx.f_globals.get("__name__")
        if tx.f_globals is tx.root.f_globals or not (isinstance(module, str) and module.startswith(_SETTLED)):
            self.guard(tx.globals_dict_source(), "DICT_NOT_CONTAINS", name)

    # -- inputs -------------------------------------------------------------------------------------------------

    def add_tensor_input(self, value: torch.Tensor, source: Any) -> VariableTracker:
        """Tracker of a tensor that comes from outside; becomes a graph input when a node uses it."""
        from lamina_dynamo.variables.tensor import TensorVariable

        if value.layout is not torch.strided or value.is_nested:
            raise GraphBreak("sparse_or_nested", value=source.name, layout=str(value.layout))
        state = self.frame_state
        dims = state.symbolic_dims(source, value) if state is not None else ()
        strides = state.symbolic_strides(source, value) if state is not None else ()
        try:
            if dims or strides:
                fake = self.symbols.tensor(value, source, dims, strides)
            else:
                fake = fakes.from_real(value)
                self.guard(source, "TENSOR", None)
        except fakes.Unsupported as e:
            raise GraphBreak("sparse_or_nested", reason=str(e)) from None
        vt = TensorVariable(None, fake, source, type(value))
        vt.real = value
        self.track(fake, vt)
        return vt

    def track(self, fake: fakes.Fake, vt: Any) -> None:
        """``vt`` is the tracker of ``fake`` from here on."""
        fake.vt = vt
        self._tracked.append(fake)

    def forget_trackers(self) -> None:
        """Fake values lead back to their trackers and those to the frame's real values, in circles that go through
        the autograd graph of the fakes, where the garbage collector cannot follow: cut them when the attempt ends.
        """
        for fake in self._tracked:
            fake.vt = None
        self._tracked.clear()
        self.stamps.forget()
        self.gradients.forget()

    def input_node(self, vt: Any) -> torch.fx.Node:
        """The placeholder of an outside tensor or number, made on first use."""
        graph = self.root_graph
        name = _identifier(vt.source.name)
        behind = self.inputs[-1][0] if self.inputs else graph._root
        node = _torch.append_node(graph, name, "placeholder", name, (), {}, behind)
        node.meta["val"] = vt.fake
        node.meta["source"] = vt.source
        node.meta["stack_trace"] = self.current_tx.stack_trace() if self.current_tx is not None else ""
        self.inputs.append((node, vt.real, vt.source))
        return node

    # -- nodes --------------------------------------------------------------------------------------------------

    def create_call(
        self, op: str, target: Any, args: Any, kwargs: dict[str, VariableTracker] | None = None
    ) -> VariableTracker:
        """Record a call in the graph: run it on the fakes, make the node, wrap the result.

        ``op``: ``call_function`` or ``call_method``. No node is made for a pure call whose result is a Python value
        (sizes, dtypes).
        Breaks the graph if the call needs tensor values, or fails (eager then raises the real error).
        """
        if self.overrides:
            from .variables.torch_function import intercept_node

            taken = intercept_node(self.current_tx, op, target, args, kwargs)
            if taken is not None:
                return taken
        fx_args = tuple([a.as_proxy() for a in args])
        fx_kwargs = {k: a.as_proxy() for k, a in kwargs.items()} if kwargs else {}
        return self.create_node(op, target, fx_args, fx_kwargs)

    def create_node(
        self, op: str, target: Any, fx_args: tuple[Any, ...], fx_kwargs: dict[str, Any], impure: bool = False
    ) -> VariableTracker:
        """As ``create_call``, for arguments that are graph arguments already."""
        if self.bodies:
            torch.fx.map_arg((fx_args, fx_kwargs), self.check_node)
        given = impure
        result, impure = self.run_fake(op, target, fx_args, fx_kwargs)
        # some of torch's functions write to `out` by ways that fakes do not see (linalg.matrix_rank)
        impure = impure or given or fx_kwargs.get("out") is not None
        if fakes.Effects.read:
            fx_args, fx_kwargs = self._with_numbers(op, target, fx_args, fx_kwargs, result)
        if not impure:
            known = self._known(result)
            if known is not None:
                return known
        node = self.graph.create_node(op, target, fx_args, fx_kwargs)
        self.op_count += 1
        meta = node.meta
        meta["val"] = result
        meta["stack_trace"] = self.current_tx.stack_trace()
        if self.module_stack:
            stack = self._module_stack_copy
            if stack is None:
                stack = self._module_stack_copy = dict(self.module_stack)
            meta["nn_module_stack"] = stack
        if impure:
            meta["impure"] = True
        if fakes.Effects.random:
            self.draws = True
        fallible = fakes.Effects.fallible or _name(target) in fakes.FALLIBLE
        if fallible or not self.protected:
            self.note_handlers(node, fallible)
        return self.wrap_result(node, result)

    def note_handlers(self, node: torch.fx.Node, fallible: bool) -> None:
        """A ``fallible`` node may refuse the values that it gets: where the program has a handler it must be run even
        for a result that nobody uses."""
        from .failed_graph import has_handler, has_handler_of_program

        self.fallible = self.fallible or fallible
        if fallible and self.gradients.values and has_handler_of_program(self.current_tx):
            # the frame's own code cannot take over from a graph that has run backward
            raise GraphBreak("autograd_call", reason="a call that may fail, in a try block behind backward()")
        if has_handler(self.current_tx):
            self.protected = True
            if fallible and node.graph is self.root_graph:
                node.meta["protected"] = True

    def check_node(self, node: torch.fx.Node) -> torch.fx.Node:
        """``node``, unless it belongs to a body that is closed: then that body cannot be a graph of its own."""
        mark = self.bodies.get(node.graph)
        if mark is not None:
            from .translator.base import RestartTranslation

            self.decisions[mark] = True
            raise RestartTranslation
        return node

    def run_fake(self, op: str, target: Any, fx_args: Any, fx_kwargs: Any) -> tuple[Any, bool]:
        real_args = [_value(a) for a in fx_args]
        real_kwargs = {k: _value(a) for k, a in fx_kwargs.items()}
        if self._symbols is not None and _has_fake((*real_args, *real_kwargs.values())):
            real_args = [_plain_float(a) for a in real_args]
            real_kwargs = {k: _plain_float(a) for k, a in real_kwargs.items()}
            if shows_unknown(_name(target), real_args, real_kwargs):
                raise GraphBreak("data_dependent_shape", op=_name(target))
        effects = fakes.Effects
        effects.impure = effects.random = effects.fallible = False
        if effects.read:
            effects.read.clear()
        try:
            # Under a mode even where an argument is a fake: without one torch loads its distributed tensors to look
            # at a subclass.
            with self.mode:
                if op == "call_method":
                    result = getattr(real_args[0], target)(*real_args[1:], **real_kwargs)
                else:
                    result = target(*real_args, **real_kwargs)
        except fakes.DataDependent as e:
            inside = None if e.scalar or effects.unbacked else keeps_sizes(self)
            if (self.captures(e.scalar) or inside is not None) and not effects.unbacked:
                env = self.symbols.env  # its fake mode takes over
                effects.unbacked = True
                env.makes_sizes = inside is not None
                try:
                    result = self.run_fake(op, target, fx_args, fx_kwargs)
                finally:
                    effects.unbacked = env.makes_sizes = False
                if inside is not None:
                    self.sizes_kept.add(id(inside))
                return result
            raise GraphBreak("data_dependent_scalar" if e.scalar else "data_dependent_shape", op=str(e.op)) from None
        except fakes.Unsupported as e:
            raise GraphBreak("torch_unsupported", target=_name(target), reason=str(e)) from None
        except GraphBreak:
            raise
        except Exception as e:
            interruption.pass_on(e)
            if type(e).__name__ == "GuardOnDataDependentSymNode":
                if not self.symbols.env.supposes_large:
                    with self.symbols.suppose_large():
                        return self.run_fake(op, target, fx_args, fx_kwargs)
                raise GraphBreak("data_dependent_shape", op=_name(target)) from None
            text = f"{type(e).__name__}: {e}".split("\n")[0]
            raise GraphBreak("torch_call_failed", target=_name(target), error=text) from e
        if type(result) is fakes.Fake and getattr(result, "changed", False):
            result = fakes.settled(result)
        if self._symbols is not None and self._symbols.env.supposed_equal and target is not torch._check:
            # `x[mask] + ones(2)` would be compiled for two rows
            raise GraphBreak("data_dependent_shape", op=_name(target))
        return result, effects.impure or _is_in_place(op, target)

    def lose_patience(self) -> None:
        """A loop runs on and on: following it pays where operators are met, and only up to a limit."""
        if all(node.op == "placeholder" for node in self.root_graph.nodes):
            leave_whole("long_loop", instructions=self.count)
        self.patience = self.instruction_limit
        if self.count > self.instruction_limit:
            raise GraphBreak("long_loop", instructions=self.count)

    def captures(self, scalar: bool) -> bool:
        """Do values (``scalar``) or sizes that only the run knows become symbols?"""
        return bool(self.config.capture_scalar_outputs if scalar else self.config.capture_dynamic_output_shape)

    def _with_numbers(
        self, op: str, target: Any, fx_args: Any, fx_kwargs: Any, result: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call that read known scalars as numbers (``x.view(torch.div(12, 4))``), with these
        numbers in their places: what the graph is handed to need not know the values."""
        read = fakes.Effects.read[:]

        def replace(x: Any) -> Any:
            kind = type(x)
            if kind is torch.fx.Node:
                for fake in read:
                    if x.meta["val"] is fake:
                        return fakes.known_scalar(fake).item()
                return x
            if kind is slice:
                return slice(replace(x.start), replace(x.stop), replace(x.step))
            if isinstance(x, dict):
                return {k: replace(i) for k, i in x.items()}
            if isinstance(x, (tuple, list)) and not hasattr(x, "_fields"):
                return type(x)([replace(i) for i in x])
            return x

        new_args, new_kwargs = replace(tuple(fx_args)), replace(dict(fx_kwargs))
        if op == "call_method" and type(new_args[0]) is not torch.fx.Node:
            if type(result) is fakes.Fake:
                raise GraphBreak("data_dependent_scalar", op=_name(target))
            return fx_args, fx_kwargs
        again, _ = self.run_fake(op, target, new_args, new_kwargs)
        fakes.Effects.read.clear()
        if type(result) is fakes.Fake and (type(again) is not fakes.Fake or again.mk != result.mk):
            raise GraphBreak("data_dependent_scalar", op=_name(target))
        return new_args, new_kwargs

    def _known(self, result: Any) -> VariableTracker | None:
        kind = type(result)
        if kind is fakes.Fake:
            return result.vt  # the call gave one of its arguments back
        if kind in CONSTANT_TYPES or isinstance(result, _QUIET_RESULTS) or kind is torch.Size:
            return self.wrap_value(result)
        if kind is tuple and all(type(x) in CONSTANT_TYPES for x in result):
            return self.wrap_value(result)
        return None

    def wrap_value(self, value: Any) -> VariableTracker:
        from lamina_dynamo.variables.constant import wrap_result
        from lamina_dynamo.variables.tensor import make_size

        if type(value) is torch.Size:
            return make_size(self, value)
        return wrap_result(self.current_tx, value)

    def wrap_result(self, node: torch.fx.Node, result: Any) -> VariableTracker:
        """Tracker of what a node gives: a tensor, a number, or a structure of them (``getitem`` nodes)."""
        from .variables import tensor as tensors

        kind = type(result)
        if kind is fakes.Fake:
            if result.vt is not None:
                return result.vt
            vt = tensors.TensorVariable(node, result, None, torch.Tensor)
            self.track(result, vt)
            return vt
        if isinstance(result, torch.Tensor):
            result = self._adopt(result)
            node.meta["val"] = result
            vt = tensors.TensorVariable(node, result, None, torch.Tensor if kind is not torch.nn.Parameter else kind)
            self.track(result, vt)
            return vt
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            from .variables.symint import SymNumberVariable

            return SymNumberVariable(node, result)
        if isinstance(result, (tuple, list)) and kind is not torch.Size:
            items = []
            for i, part in enumerate(result):
                if type(part) is fakes.Fake and part.vt is not None:
                    items.append(part.vt)
                elif isinstance(part, (torch.Tensor, tuple, list, torch.SymInt)):
                    item = self.graph.create_node("call_function", operator.getitem, (node, i), {})
                    item.meta["val"] = part
                    item.meta["stack_trace"] = node.meta["stack_trace"]
                    items.append(self.wrap_result(item, part))
                else:
                    items.append(self.wrap_value(part))
            return tensors.make_sequence(kind, items)
        return self.wrap_value(result)

    def _adopt(self, t: torch.Tensor) -> Any:
        """A real tensor that came out of a call on fakes (a constant): only its metadata counts."""
        fake = fakes.from_real(t)
        return fake

    # -- symbolic ------------------------------------------------------------------------------------------------

    @property
    def symbols(self) -> Any:
        """Symbolic sizes and ints; made when the first is needed."""
        if self._symbols is None:
            from .symbolic import Symbols

            self._symbols = Symbols(self)
        return self._symbols

    def maybe_symbolic(self, value: Any, source: Any) -> VariableTracker | None:
        """A symbolic number for an outside int or float that varies from call to call, or None."""
        if (
            self.frame_state is None
            or type(value) not in (int, float)
            or type(value) is float
            and not value  # symbols do not tell 0.0 from -0.0
            or not self.frame_state.is_symbolic_number(source, value)
        ):
            return None
        found = self._numbers.get(source)
        if found is None:
            from .variables.symint import SymNumberVariable

            symbol = self.symbols.number(value, source)
            found = self._numbers[source] = SymNumberVariable(None, symbol, source, symbol)
        return found

    def all_guards(self) -> list[Guard]:
        """Guards of the translation, those about symbols included."""
        for vt in self.unread:
            vt.guard_presence()
        guards = self.guards + self.guards_of_keys()
        return guards if self._symbols is None else guards + self._symbols.guards()

    def guards_of_keys(self) -> list[Guard]:
        """Objects from outside that served as keys by identity are not one object at the next call either."""
        kinds: dict[type, list[Any]] = {}
        for vt in self.told_apart:
            if vt.source is not None and not is_drawn(vt.source):
                kinds.setdefault(vt.python_type(), []).append(vt.source)
        return [Guard(tuple(sources), "NOT_SAME") for sources in kinds.values() if len(sources) > 1]

    def symbol(self, value: Any) -> VariableTracker:
        """Tracker of a symbolic expression that occurs in metadata."""
        raise GraphBreak("dynamic_shape", value=str(value))

    # -- finishing -----------------------------------------------------------------------------------------------

    def remove_dead_nodes(self) -> None:
        """Drop nodes that nothing uses and that neither write nor draw random numbers, and then unused inputs."""
        graph = self.graph
        for node in reversed(graph.nodes):
            if node.users or node.op == "output" or node.op == "placeholder":
                continue
            if "impure" in node.meta or "protected" in node.meta:
                continue
            graph.erase_node(node)
        kept = []
        for entry in self.inputs:
            if entry[0].users:
                kept.append(entry)
            else:
                graph.erase_node(entry[0])
        self.inputs = kept

    def module(self, outputs: list[torch.fx.Node]) -> torch.fx.GraphModule:
        self.graph.output(tuple(outputs))
        self.remove_dead_nodes()
        root = torch.nn.Module() if self.module_attributes else {}
        if self.module_attributes:
            for name, value in self.module_attributes.items():
                setattr(root, name, value)
        return _torch.captured_module(root, self.graph, "CapturedGraph")

    def has_effects(self) -> bool:
        return any("impure" in n.meta for n in self.graph.nodes)


def _value(x: Any) -> Any:
    kind = type(x)
    if kind is torch.fx.Node:
        return x.meta["val"]
    if kind is tuple or kind is list:
        return kind([_value(i) for i in x])
    if kind is dict:
        return {k: _value(i) for k, i in x.items()}
    if kind is slice:
        return slice(_value(x.start), _value(x.stop), _value(x.step))
    if isinstance(x, (tuple, list)):
        return kind(*[_value(i) for i in x]) if hasattr(x, "_fields") else kind([_value(i) for i in x])
    return x


def _has_fake(values: Any) -> bool:
    for x in values:
        kind = type(x)
        if kind is fakes.Fake or ((kind is list or kind is tuple) and _has_fake(x)):
            return True
    return False


def _plain_float(x: Any) -> Any:
    """Metadata does not depend on the value of a float: its present value stands for a symbolic one."""
    if type(x) is torch.SymFloat:
        return float(x.node.hint) if x.node.hint is not None else 1.0
    return x


def _is_in_place(op: str, target: Any) -> bool:
    """Is this a call like ``x.detach_()``, which changes its argument even where no op below autograd writes?"""
    name = target if op == "call_method" else getattr(target, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", repr(target))


_identifiers: dict[str, str] = {}


def _identifier(name: str) -> str:
    found = _identifiers.get(name)
    if found is None:
        text = "".join(c if c.isalnum() else "_" for c in name).strip("_") or "input"
        # torch.fx takes a first input of the name `self` for the module
        found = _identifiers[name] = "in_" + text if text[0].isdigit() or text == "self" else text
    return found
