"""Equal modules of one translation: the call of one is followed, the calls of its likes are stamped out.

A model of forty layers calls forty modules of one class. What following a call found is a function of what was read
on the way, and all of that is guarded: so if the guards about one module hold for another one as well, path by path,
and the arguments are alike, following the second call would give the same nodes over the second module's tensors. A
`Tape` keeps what one call left behind: its nodes, its result, and (found when it is first used) the guards below the
module's path. Stamping checks each of them on the new path, records it there, and copies the nodes.

Whatever a tape cannot say makes the call be followed as ever: a change to something that exists (an attribute, a
global, a call with an effect), another mode at the end, an argument or a result that is more than tensors, constants
and tuples of them, an object's identity used as a key, symbolic sizes, a write to an argument.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from . import _torch as private
from . import fake as fakes
from .guards import Guard
from .guards.build import complete, guard_key
from .guards.kinds import KINDS, MISSING, TensorExpect, evaluate_source
from .guards.pattern import GuardPattern, PatternGuards, guards_on
from .roots import ConstantSource
from .source import ItemSource, PythonSource, Source, TypeSource
from .variables.base import VariableTracker
from .variables.constant import ConstantVariable
from .variables.keys import IdentityKey
from .variables.lazy import LazyVariable

__all__ = ["Stamps"]

FEWEST_INSTRUCTIONS = 100
"""Calls of fewer instructions are followed: that costs no more than stamping them."""

_WHOLE_HISTORY = "whole history"
"""Decision: modules are followed one by one, since what is stamped out has no autograd graph on the fakes."""

_TAPES = 3
_MOST_MISSES = 8


class _Unlike(Exception):
    """Private: this call cannot be recorded, or not be stamped out from this tape."""


class _Begun:
    """The state of a translation when the call of a module begins."""

    __slots__ = ("args", "changes", "count", "depth", "identities", "key", "kwargs", "last", "module", "state",
                 "tensors", "trace")  # fmt: skip


class Stamps:
    """The tapes of one translation attempt."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.tapes: dict[Any, list[_Tape]] = {}
        self.misses: dict[type, int] = {}
        self.copies = 0
        #: what sources of stamped guards were found to be
        self.values: dict[Source, Any] = {}

    def need_history(self) -> None:
        """Autograd is asked for the history of fakes, which has to be whole: translates again where it is not."""
        from .translator.base import RestartTranslation

        if self.copies:
            self.output.decisions[_WHOLE_HISTORY] = True
            raise RestartTranslation

    def forget(self) -> None:
        """Drops what leads to trackers and real values."""
        self.tapes.clear()
        self.values.clear()

    def is_possible(self) -> bool:
        """Whether calls can be recorded at this point."""
        output = self.output
        return (
            not output.bodies
            and not output.overrides
            and output._symbols is None
            and output.graph is output.root_graph
            and output.side_effects.is_empty()
            and not output.side_effects.class_attrs
            and not output.decisions.get(_WHOLE_HISTORY)
        )

    def begin(self, tx: Any, module: Any, args: Any, kwargs: Any) -> _Begun | None:
        """Called before ``module`` (with a source) is followed; None: not to be recorded."""
        if not self.is_possible():
            return None
        begun = _Begun()
        begun.tensors = []
        try:
            begun.key = _call_key(module, args, kwargs, begun.tensors)
        except _Unlike:
            return None
        output = self.output
        begun.module, begun.args, begun.kwargs = module, list(args), dict(kwargs)
        begun.count, begun.last = output.count, output.graph._root._prev
        begun.depth, begun.trace = tx.depth, tx.stack_trace()
        begun.changes = output.side_effects.state_of_changes()
        begun.state, begun.identities = _state(output), IdentityKey.made
        return begun

    def end(self, begun: _Begun, result: VariableTracker) -> None:
        """The call gave ``result``: keeps a tape of it if it can be stamped out."""
        output = self.output
        if output.count - begun.count < FEWEST_INSTRUCTIONS or not self.is_possible():
            return
        if (
            output.side_effects.state_of_changes() != begun.changes
            or IdentityKey.made != begun.identities
            or _state(output) != begun.state
            or any(_version(fake) != version for fake, version in begun.tensors)
        ):
            return
        try:
            tape = _Tape(self, begun, result)
        except _Unlike:
            return
        known = self.tapes.setdefault(begun.key, [])
        known.append(tape)
        del known[:-_TAPES]

    def stamp(self, tx: Any, module: Any, args: Any, kwargs: Any) -> VariableTracker | None:
        """The result of calling ``module``, stamped out from a tape; None: follow the call."""
        if not self.tapes or self.misses.get(module.cls, 0) >= _MOST_MISSES or not self.is_possible():
            return None
        tensors: list[Any] = []
        try:
            known = self.tapes.get(_call_key(module, args, kwargs, tensors))
        except _Unlike:
            return None
        if not known:
            return None
        for tape in reversed(known):
            try:
                result = tape.stamp(tx, module, [fake.vt for fake, _ in tensors])
            except _Unlike:
                continue
            self.misses[module.cls] = 0
            return result
        self.misses[module.cls] = self.misses.get(module.cls, 0) + 1
        return None


def _state(output: Any) -> tuple[Any, ...]:
    """What else a call may depend on or change: modes, of torch and of the translation."""
    return (
        torch.is_grad_enabled(),
        fakes.inference_mode_enabled(),
        private.autocast_state(),
        torch.get_default_dtype(),
        tuple(map(id, output.context_stack)),
        len(output.function_modes),
        output.overrides_off,
        output.sets_state,
    )


# -- what a call is made with ----------------------------------------------------------------------------------------


def _call_key(module: Any, args: Any, kwargs: Any, tensors: list[Any]) -> Any:
    """Equal for calls that are alike but for the module. ``tensors``: gets (fake, version) of each tensor that is
    no value from outside, in order."""
    parts = [_argument_key(a, tensors) for a in args]
    named = tuple([(k, _argument_key(a, tensors)) for k, a in kwargs.items()])
    return (module.cls, tuple(parts), named)


def _argument_key(vt: Any, tensors: list[Any]) -> Any:
    if type(vt) is LazyVariable:
        if not vt.is_realized:
            return ("lazy", vt.source, id(vt._value))
        vt = vt.realize()
    kind = type(vt)
    if kind is ConstantVariable:
        value = vt.value
        return (type(value), value if type(value) in (int, bool, str) else repr(value))
    if _is_tensor(vt):
        if vt.source is not None:
            return ("same", id(vt))
        for i, (known, _) in enumerate(tensors):
            if known is vt.fake:
                return ("tensor", i)
        key = _tensor_key(vt)
        tensors.append((vt.fake, _version(vt.fake)))
        return key
    if vt.source is not None:
        return ("same", id(vt))
    if _is_tuple(vt):
        return (kind, tuple([_argument_key(i, tensors) for i in vt.items]))
    raise _Unlike


def _tensor_key(vt: Any) -> Any:
    """Everything about a tensor made by the translation that following a call could see."""
    fake = vt.fake
    if type(fake) is not fakes.Fake or vt.attrs or fake.vt is not vt or vt.node is None:
        raise _Unlike
    if fake.constant is not None or fake.drawn is not None or fake._base is not None:
        raise _Unlike
    if fake.is_inference() != fakes.inference_mode_enabled() or not all(type(n) is int for n in fake.mk[0]):
        raise _Unlike
    return (vt.cls, fake.mk, fake.requires_grad, fake.is_leaf, _version(fake))


def _version(fake: Any) -> int:
    return 0 if fake.is_inference() else fake._version  # inference tensors count no writes


def _is_tensor(vt: Any) -> bool:
    from .variables.tensor import TensorVariable

    return type(vt) is TensorVariable


def _is_tuple(vt: Any) -> bool:
    from .variables.container import TupleVariable

    return type(vt) is TupleVariable


# -- what a call leaves behind ---------------------------------------------------------------------------------------


class _Tape:
    """One followed call of a module."""

    def __init__(self, stamps: Stamps, begun: _Begun, result: VariableTracker) -> None:
        output = self.output = stamps.output
        self.stamps = stamps
        self.module = begun.module
        self.args, self.kwargs = begun.args, begun.kwargs  # kept alive: keys name them by id
        self.count = output.count - begun.count
        self.depth, self.trace = begun.depth, begun.trace
        self.changes, self.state = begun.changes, begun.state
        root = output.graph._root
        self.nodes: list[Any] = []
        node = root._next if begun.last is root else begun.last._next
        while node is not root:
            if node.op != "placeholder":
                if node.op not in ("call_function", "call_method"):
                    raise _Unlike
                self.nodes.append(node)
            node = node._next
        self.arg_tensors = [fake.vt for fake, _ in begun.tensors]
        own = set(self.nodes)
        self.results: dict[Any, Any] = {}  # fake -> tracker of a result made by the call
        self.result = self._plan(result, own)
        #: guards below the module's path: read when first needed
        self.pattern: GuardPattern | None = None
        self.tensors: list[tuple[int, Source]] = []  # with TENSOR guards: these are recorded where they are wrapped
        self.relations: list[Guard] = []
        self.objects: list[int] = []  # positions of what two paths may lead to
        self.alike: list[int] = []  # for each of them the first that is the same object
        self.numbers: list[tuple[int, Source]] = []  # guarded as constants
        self.inputs: list[tuple[Any, Source]] = []

    def _plan(self, vt: Any, own: set[Any]) -> Any:
        """How to make the result anew."""
        vt = vt.realize()
        if type(vt) is ConstantVariable:
            return ("constant", vt.value)
        if _is_tensor(vt):
            for i, arg in enumerate(self.arg_tensors):
                if arg is vt:
                    return ("argument", i)
            if vt.source is not None or vt.node not in own:
                raise _Unlike
            _tensor_key(vt)
            self.results[vt.fake] = vt
            return ("tensor", vt.fake)
        if _is_tuple(vt) and vt.source is None:
            return ("tuple", [self._plan(i, own) for i in vt.items])
        raise _Unlike

    # -- the guards ------------------------------------------------------------------------------------------------

    def _read_guards(self) -> None:
        """Finds the guards below the module's path. Raises _Unlike where one says more than its path."""
        output, scope, values = self.output, self.output.scope, self.stamps.values
        prefix = self.module.source
        inside: dict[Source, bool] = {prefix: True}
        typed: set[Source] = set()

        def is_below(source: Source) -> bool:
            found = inside.get(source)
            if found is None:
                found = inside[source] = source.base is not None and is_below(source.base)
                if found and not _is_plain_step(source):
                    raise _Unlike
            return found

        found: list[Guard] = []

        def look_at(guard: Guard) -> None:
            source = guard.source
            if isinstance(source, tuple):
                if any([is_below(s) for s in source]):
                    found.append(guard)
            elif source is not None and is_below(source):
                found.append(guard)
                if guard.kind == "TYPE":
                    typed.add(source)

        path = {prefix}
        step: Source | None = prefix
        while step is not None:
            path.add(step)
            step = step.base
        for guard in output.guards:
            if not isinstance(guard, PatternGuards):
                look_at(guard)
            elif guard.source in path or is_below(guard.source):
                for one in guards_on(guard.source, guard.pattern.top, [g for _, g in guard.pattern.checks]):
                    look_at(one)
        single: list[Guard] = []
        tensors: list[Guard] = []
        seen: set[Any] = set()
        for guard in found:
            source = guard.source
            if isinstance(source, tuple):
                self.relations.append(complete(guard, scope, values))
                continue
            if _hangs_on_class(source, typed):  # the same for every object of that class
                continue
            if guard.kind == "PYTHON" or guard.kind not in _IDENTITY and not _is_plain_value(guard.value):
                raise _Unlike
            whole = complete(guard, scope, values)
            key = guard_key(whole)
            if key is not None and key in seen:
                continue
            seen.add(key)
            (tensors if guard.kind == "TENSOR" else single).append(whole)
        related = [s for g in self.relations for s in g.source if is_below(s)]  # type: ignore[union-attr]
        pattern = GuardPattern(prefix, single, [*(g.source for g in tensors), *related])
        places = pattern.places
        at = pattern.values(evaluate_source(prefix, scope, values), scope)
        pattern.settle(at)
        self.tensors = [(places[g.source], g) for g in tensors]
        self.objects = [k for k, g in (*pattern.checks, *self.tensors) if g.kind in ("TYPE", "TENSOR")]
        self.alike = _first_alike(at, self.objects)
        constants = [(k, g) for k, g in pattern.checks if g.kind == "CONSTANT"]
        self.numbers = [(k, g.source) for k, g in constants if type(g.value) in (int, float)]
        self.pattern = pattern
        met: set[Any] = set()
        for node in self.nodes:
            for used in node.all_input_nodes:
                if used.op == "placeholder" and used not in met:
                    met.add(used)
                    source = used.meta["source"]
                    if is_below(source):
                        self.inputs.append((used, source))

    def stamp(self, tx: Any, module: Any, arg_tensors: list[Any]) -> VariableTracker:
        """The result of calling ``module``; raises _Unlike, with nothing recorded but true guards, if it differs."""
        output = self.output
        if (
            tx.depth != self.depth
            or output.side_effects.state_of_changes() != self.changes
            or _state(output) != self.state
            or output.count < output.break_at <= output.count + self.count
        ):
            raise _Unlike
        if self.module is None:
            raise _Unlike
        if self.pattern is None:
            try:
                self._read_guards()
            except _Unlike:
                self.module = None
                raise
        moved: dict[Source, Source] = {self.module.source: module.source}
        back: dict[Source, Source] = {}

        def move(source: Source) -> Source:
            found = moved.get(source)
            if found is None:
                base = source.base
                found = source if base is None or (to := move(base)) is base else source.on_base(to)
                moved[source] = found
                if found is not source:
                    back[found] = source
            return found

        tensors, relations = self._check_guards(module.source, move)
        named = {source: k for k, source, _, _ in tensors}
        for guard in relations:
            for source in guard.source:  # type: ignore[union-attr]
                k = self.pattern.places.get(back[source]) if source in back else None  # type: ignore[union-attr]
                if k:
                    named[source] = k
        output.guards.append(PatternGuards(self.pattern, module.source, named))
        output.guards.extend(relations)
        env: dict[Any, Any] = {}
        wrapped: dict[Source, Any] = {}
        try:
            for _, source, value, output.assumed_at in tensors:
                vt = tx.wrap(value, source).realize()
                if not _is_tensor(vt):
                    raise _Unlike
                wrapped[source] = vt
        finally:
            output.assumed_at = None
        for node, source in self.inputs:
            vt = wrapped.get(move(source))
            if vt is None or not _equal_inputs(vt.fake, node.meta["val"]):
                raise _Unlike
            env[node] = vt
        for node, vt in env.items():
            env[node] = vt.as_proxy()
        for old, new in zip(self.arg_tensors, arg_tensors, strict=True):
            env[old.node] = new.node
        output.count += self.count
        return self._copy(tx, module, env, arg_tensors)

    def _check_guards(self, path: Source, move: Any) -> tuple[list[tuple[int, Source, Any, Any]], list[Guard]]:
        """Whether all guards hold on the new path: its tensors (position, source, value, stack of the guard) and the
        guards between paths.
        Raises _Unlike where one does not."""
        output, known, pattern = self.output, self.stamps.values, self.pattern
        scope = output.scope
        assert pattern is not None
        top = evaluate_source(path, scope, known)
        values = pattern.values(top, scope)
        if not pattern.holds(values) or _first_alike(values, self.objects) != self.alike:
            raise _Unlike  # two paths lead to one object here if and only if they do there
        check = KINDS["TENSOR"].check
        tensors = []
        for k, guard in self.tensors:
            value = values[k]
            if value is MISSING or not _holds(check, value, guard.value):
                raise _Unlike
            tensors.append((k, move(guard.source), value, guard.stack))
        relations = []
        for guard in self.relations:
            new = tuple([move(s) for s in guard.source])  # type: ignore[union-attr]
            found = []
            for old, source in zip(guard.source, new, strict=True):  # type: ignore[arg-type]
                k = pattern.places.get(old)
                found.append(evaluate_source(source, scope, known) if k is None else values[k])
            if any([v is MISSING for v in found]) or not _holds(KINDS[guard.kind].check, found, guard.value):
                raise _Unlike
            relations.append(Guard(new, guard.kind, guard.value, guard.stack))
        if self.numbers and output.frame_state is not None:
            for k, source in self.numbers:
                if output.maybe_symbolic(values[k], move(source)) is not None:
                    raise _Unlike
        return tensors, relations

    # -- the nodes -------------------------------------------------------------------------------------------------

    def _copy(self, tx: Any, module: Any, env: dict[Any, Any], arg_tensors: list[Any]) -> VariableTracker:
        from .variables.tensor import TensorVariable

        output = self.output
        stamps = self.stamps
        stamps.copies += 1
        graph = output.graph
        here, trace = tx.stack_trace(), self.trace
        fresh = {old: _like(old) for old in self.results}
        traces: dict[str, str] = {}
        stacks: dict[int, Any] = {}
        for node in self.nodes:
            new = private.append_node(
                graph, f"{node.name}_s{stamps.copies}", node.op, node.target, _mapped(node.args, env),
                _mapped(node.kwargs, env) if node.kwargs else {},
            )
            env[node] = new
            meta = dict(node.meta)
            val = meta["val"]
            if type(val) is fakes.Fake and val in fresh:
                meta["val"] = fresh[val]
            text = meta["stack_trace"]
            if here != trace:
                moved = traces.get(text)
                if moved is None:
                    moved = traces[text] = here + text[len(trace) :] if text.startswith(trace) else text
                meta["stack_trace"] = moved
            stack = meta.get("nn_module_stack")
            if stack is not None:
                copy = stacks.get(id(stack))
                if copy is None:
                    copy = stacks[id(stack)] = self._module_stack(stack, module)
                meta["nn_module_stack"] = copy
            new.meta = meta
        output.op_count += len(self.nodes)
        trackers: dict[Any, Any] = {}
        for old, vt in self.results.items():
            made = TensorVariable(env[vt.node], fresh[old], None, vt.cls)
            output.track(fresh[old], made)
            trackers[old] = made
        return self._make(tx, self.result, trackers, arg_tensors)

    def _make(self, tx: Any, plan: Any, trackers: dict[Any, Any], arg_tensors: list[Any]) -> VariableTracker:
        kind, value = plan
        if kind == "constant":
            return tx.const(value)  # type: ignore[no-any-return]
        if kind == "argument":
            return arg_tensors[value]  # type: ignore[no-any-return]
        if kind == "tensor":
            return trackers[value]  # type: ignore[no-any-return]
        from .variables.container import TupleVariable

        return TupleVariable([self._make(tx, p, trackers, arg_tensors) for p in value])

    def _module_stack(self, stack: dict[str, Any], module: Any) -> dict[str, Any]:
        old, new = self.module.source.name, module.source.name
        out = dict(self.output.module_stack)
        passed = False
        for key, entry in stack.items():
            if passed:
                renamed = new + key[len(old) :] if key.startswith(old) else key
                out[renamed] = (renamed, *entry[1:])
            passed = passed or key == old
        return out


def _first_alike(values: list[Any], positions: list[int]) -> list[int]:
    """For each of the positions the number of the first object that is the same."""
    seen: dict[int, int] = {}
    return [seen.setdefault(id(values[k]), len(seen)) for k in positions]


def _holds(check: Any, value: Any, expected: Any) -> bool:
    try:
        return bool(check(value, expected))
    except Exception:  # a value of another type: certainly not what was expected
        return False


def _like(fake: Any) -> Any:
    """A fake like ``fake``, made by nobody in particular."""
    made = fakes.Fake.make(*fake.mk, requires_grad=fake.requires_grad)
    if not fake.is_leaf:
        with torch.enable_grad():
            made = made.view_as_fake()
    if _version(fake):
        private.set_version_counter((made,), (_version(fake),))
    return made


def _equal_inputs(a: Any, b: Any) -> bool:
    return (
        type(a) is fakes.Fake
        and type(b) is fakes.Fake
        and a.mk == b.mk
        and a.requires_grad == b.requires_grad
        and a.is_leaf == b.is_leaf
        and _version(a) == _version(b)
        and a.is_inference() == b.is_inference()
    )


def _mapped(x: Any, env: dict[Any, Any]) -> Any:
    """FX arguments with their nodes replaced."""
    kind = type(x)
    if kind is torch.fx.Node:
        return env.get(x, x)
    if isinstance(x, (tuple, list)):
        items = [_mapped(i, env) for i in x]
        return kind(*items) if hasattr(x, "_fields") else kind(items)
    if isinstance(x, dict):
        return {k: _mapped(v, env) for k, v in x.items()}
    if kind is slice:
        return slice(_mapped(x.start, env), _mapped(x.stop, env), _mapped(x.step, env))
    return x


# -- what guards may say ---------------------------------------------------------------------------------------------

_PLAIN = (
    int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size, torch.layout,
    torch.memory_format, TensorExpect, types.CodeType, types.FunctionType, types.BuiltinFunctionType,
    types.ModuleType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, property, staticmethod, classmethod,
)  # fmt: skip


# What they expect is compared with what the other module has, by identity.
_IDENTITY = frozenset({"ID", "CLASS_ATTR"})


def _is_plain_value(value: Any) -> bool:
    """Whether an expected value is no object that belongs to one module alone."""
    if isinstance(value, (tuple, list, frozenset, set)):
        return all(map(_is_plain_value, value))
    if isinstance(value, dict):
        return all(map(_is_plain_value, value)) and all(map(_is_plain_value, value.values()))
    return isinstance(value, _PLAIN)


def _is_plain_step(source: Source) -> bool:
    """Whether a step of a path means the same on another path: no object of one module is part of it."""
    if isinstance(source, ItemSource):
        return _is_plain_value(source.key)
    if isinstance(source, PythonSource):
        return _is_plain_value(source.extra) and isinstance(source.function, (types.FunctionType, type))
    return not isinstance(source, ConstantSource)


def _hangs_on_class(source: Source, typed: set[Source]) -> bool:
    step: Source | None = source
    while step is not None:
        if isinstance(step, TypeSource) and step.base in typed:
            return True
        step = step.base
    return False
