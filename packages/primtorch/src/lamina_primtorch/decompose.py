"""``decompose``: a flat functional ATen graph in, the same computation over prims out.

Each node's decomposition runs once on light ``Value``s under a recorder (see ``record``); no dispatcher, no fake
tensor. What has no
decomposition, or whose decomposition declines the case at hand, stays as an extern: a named extern prim or the
OpOverload itself.
"""

from __future__ import annotations

import operator
import time
from typing import Any

import torch
import torch.fx as fx

from . import observe
from ._torch import NodeAppender, make_graph_module
from .config import current
from .contract import require_graph
from .errors import ContractError
from .operands import to
from .prims import PRIMS as _P
from .record import Opaque, Recorder, Row
from .spec import Prim, TensorMeta
from .strides import equal
from .symbols import Symbols
from .tables import Table, decomposition_table, extern_prim
from .value import Value

_COPIED = ("stack_trace", "nn_module_stack", "seq_nr", "partitioner_tag", "recompute", "desc")
_COPIES = ("aten._to_copy.default",)  # across devices it is what it says
_getitem = operator.getitem
restride = _P["restride"]


def decompose(gm: fx.GraphModule, target: str = "prims", table: Any = None) -> fx.GraphModule:
    """Rewrite ``gm`` over prims.

    gm      flat functional ATen graph; every node has ``meta["val"]`` (contract: fake values). Placeholders may be
            symbolic ints.
    target  "prims", or "core_aten" (only what is outside of torch's core ATen set is decomposed, and spelled in ATen
            again)
    table   a decomposition table to use instead of ``decomposition_table(target)``

    Returns a new GraphModule with the same placeholders and output structure. ``meta["val"]`` of new nodes are
    ``Value``s; stack_trace,
    nn_module_stack and seq_nr come from the node they replace. Never fails on an op: what cannot be decomposed is kept.
    Raises ValueError for an unknown target, TypeError for what is no GraphModule.
    """
    require_graph(gm)
    start = time.perf_counter()
    if table is None:
        table = decomposition_table(target)
    run = _Run(gm, table)
    out = run.rewrite()
    if target == "core_aten":
        from .core_aten import spell_in_aten

        for graph in (out, *(region.graph_module for region in run.regions.values())):
            spell_in_aten(graph)
    if observe.LISTENERS:
        sizes = {"nodes_in": len(gm.graph.nodes), "nodes_out": len(out.graph.nodes)}
        told = {**sizes, "kept": dict(run.kept), "graph": out}
        observe.emit("decomposed", told, time.perf_counter() - start)
    return out


class _Run:
    def __init__(self, gm: fx.GraphModule, table: Table) -> None:
        self.gm = gm
        self.table = table
        self.recorder = Recorder()
        self.symbols = Symbols(self.recorder)
        self.env: dict[fx.Node, Any] = {}
        self.kept: dict[str, str] = {}
        self.strict = current().strict
        self.regions: dict[Any, Any] = {}
        self.mixed = self.is_mixed()

    # -- recording
    # ---------------------------------------------------------------------------------------------------------

    def rewrite(self) -> fx.GraphModule:
        recorder = self.recorder
        env = self.env
        output: Any = None
        with recorder:
            for node in self.gm.graph.nodes:
                recorder.source = node
                if node.op == "call_function":
                    env[node] = self.call(node)
                elif node.op == "output":
                    output = self.outputs(node)
                else:
                    env[node] = self.input(node)
        return self.materialise(output)

    def input(self, node: fx.Node) -> Any:
        """A placeholder or get_attr: copied as it is."""
        row = Row(node.target, node.args, node.kwargs, node, True, node.op)
        self.recorder.rows.append(row)
        val = node.meta.get("val")
        got = self.recorder.result(row, _meta_of(val))
        row.meta = val
        if type(got) is Value:
            for n in (*got.shape, *got._stride):
                if type(n) is not int:
                    self.symbols.note(got, row)
                    break
        return got

    def call(self, node: fx.Node) -> Any:
        target = node.target
        env = self.env
        args = _read(node.args, env)
        kwargs = {k: _read(v, env) for k, v in node.kwargs.items()} if node.kwargs else {}
        if target is _getitem and isinstance(args[0], (tuple, list)):
            return args[0][args[1]]
        if hasattr(target, "with_graph"):
            return self.recorder.add(self.region(target), args, kwargs, _meta_of(node.meta.get("val")), True)
        fn = self.table.find(target)
        if fn is None:
            return self.extern(node, args, kwargs)
        given = args, kwargs
        if self.mixed:
            args, kwargs = self.on_one_device(node, args, kwargs)
        try:
            got = fn(*args, **kwargs)
            if got is not NotImplemented:
                return self.settle(node, got)
            reason = "not decomposed for these arguments"
        except NotImplementedError as e:
            reason = str(e) or "not decomposed for these arguments"
        except Exception as e:
            if self.strict and type(e).__name__ != "GuardOnDataDependentSymNode":
                raise
            reason = f"{type(e).__name__}: {e}"
        # rows recorded before an attempt was declined have no user and vanish
        if observe.LISTENERS:
            observe.emit("kept", {"op": str(target), "reason": reason})
        self.kept[str(target)] = reason
        return self.extern(node, *given)

    # -- devices
    # -----------------------------------------------------------------------------------------------------------

    def is_mixed(self) -> bool:
        """True if the graph has tensors on the CPU and on another device."""
        found = set()
        for node in self.gm.graph.nodes:
            val = node.meta.get("val")
            for v in val if isinstance(val, (tuple, list)) else (val,):
                device = getattr(v, "device", None)
                if device is not None:
                    found.add(device.type == "cpu")
        return len(found) > 1

    def on_one_device(
        self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Eager takes 0-dim CPU tensors beside tensors of a device as numbers: prims get them on that device."""
        val = node.meta.get("val")
        device = getattr(val[0] if isinstance(val, (tuple, list)) and val else val, "device", None)
        if device is None or device.type == "cpu" or str(node.target) in _COPIES:
            return args, kwargs

        def move(x: Any) -> Any:
            if type(x) is Value:
                return self.moved(x, device) if x.device.type == "cpu" and not x.shape else x
            if type(x) is list or type(x) is tuple:
                return type(x)([move(y) for y in x])
            return x

        return tuple([move(a) for a in args]), {k: move(v) for k, v in kwargs.items()}

    def moved(self, x: Value, device: torch.device) -> Value:
        """A 0-dim CPU value on `device`: made there if it is a constant, else copied (once)."""
        row = x.row
        if getattr(row.target, "name", "") == "full":
            return _P["full"]((), row.args[1], x.dtype, device)
        key = ("moved", id(x), device)
        found = self.recorder.seen.get(key)
        if found is None:
            meta = TensorMeta((), (), x.dtype, device)
            to_copy = torch.ops.aten._to_copy.default
            found = self.recorder.add(to_copy, (x,), {"device": device}, meta, False, key)
        return found

    def region(self, target: Any) -> Any:
        """A called graph with its own graph rewritten, once for all its calls."""
        found = self.regions.get(target)
        if found is None:
            inner = _Run(target.graph_module, self.table)
            inner.regions = self.regions
            found = self.regions[target] = target.with_graph(inner.rewrite())
        return found

    def settle(self, node: fx.Node, got: Any) -> Any:
        """Give results the strides that eager gives (the node's own val), and the dtype that the graph was traced with:
        another graph may take them.
        """
        want = node.meta.get("val")
        if want is None:
            return got
        if type(got) is Value:
            return self.laid_out(self.typed(node, got, want), want)
        if isinstance(got, (tuple, list)) and isinstance(want, (tuple, list)):
            return type(got)(
                self.laid_out(self.typed(node, g, w), w) if type(g) is Value else g for g, w in zip(got, want)
            )
        return got

    def typed(self, node: fx.Node, got: Value, want: Any) -> Value:
        """The result in the dtype of the graph's own metadata. Shape rule and decomposition should not differ."""
        if not hasattr(want, "stride") or got.dtype is want.dtype:
            return got
        if self.strict:
            raise ContractError(
                f"{node.target}: the graph says {want.dtype}, its decomposition gives {got.dtype}",
                hint="the shape rule that traced the graph is wrong, or the decomposition is",
            )
        return to(got, want.dtype)

    def laid_out(self, got: Value, want: Any, exact: bool = False) -> Value:
        if not hasattr(want, "stride"):
            return got
        stride = got._stride
        target = tuple(want.stride())
        if equal(stride, target):
            return got
        if not exact:
            for n, a, b in zip(got.shape, stride, target):
                if type(n) is int and n == 0:
                    return got
                if a is not b and not (type(n) is int and n == 1) and not equal((a,), (b,)):
                    break
            else:
                return got
        for n, b in zip(got.shape, target):
            if type(b) is int and b == 0 and not (type(n) is int and n <= 1):
                return got  # an expanded layout cannot be written
        return restride(got, target)

    def extern(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Keep the call; its results have the metadata the graph came with."""
        target = node.target
        keep = _has_effects(target)
        prim = extern_prim(target)
        val = node.meta.get("val")
        if val is None and prim is not None and not _any_opaque(args):
            meta: Any = prim.meta(*args, **kwargs)
        else:
            meta = _meta_of(val)
        key = None
        return self.recorder.add(prim or target, args, kwargs, meta, keep, key)

    def outputs(self, node: fx.Node) -> Any:
        """Exact strides for what leaves the graph, and no new aliases: what was a fresh tensor stays one."""
        env = self.env
        taken: set[int] = set()

        def final(x: Any) -> Any:
            if not isinstance(x, fx.Node):
                return x
            got = env[x]
            if type(got) is not Value:
                return got
            want = x.meta.get("val")
            if x.op == "call_function" and want is not None:
                got = self.laid_out(got, want, exact=True)
                if (id(got) in taken or _is_alias(got.row)) and not _makes_alias(x):
                    got = self.copied(got)
            taken.add(id(got))
            return got

        def walk(x: Any) -> Any:
            if isinstance(x, (tuple, list)):
                return type(x)(map(walk, x)) if type(x) in (tuple, list) else [walk(y) for y in x]
            if isinstance(x, dict):
                return {k: walk(v) for k, v in x.items()}
            return final(x)

        return walk(node.args[0])

    def copied(self, x: Value) -> Value:
        meta = TensorMeta(x.shape, x._stride, x.dtype, x.device)
        return self.recorder.add(restride, (x, x._stride), {}, meta, False)

    # -- making the graph
    # --------------------------------------------------------------------------------------------------

    def materialise(self, output: Any) -> fx.GraphModule:
        out_args = self.resolve(output)
        self.mark(out_args)
        graph = fx.Graph()
        order = self.order(self.recorder.rows)
        append = NodeAppender(graph)
        for row in order:
            if row.op != "call_function":
                source = row.source
                node = append.copy(source) if source.op == "placeholder" else graph.node_copy(source, lambda n: n)
            else:
                node = append(row.target, _nodes(row.args), _nodes_of_dict(row.kwargs))
                meta = node.meta
                meta["val"] = row.meta
                source = row.source
                if source is not None:
                    given = source.meta
                    for name in _COPIED:
                        if name in given:
                            meta[name] = given[name]
            row.node = node
        final = graph.output(_nodes(out_args))
        last = next(iter(reversed(self.gm.graph.nodes)))
        final.meta.update(last.meta)
        name = type(self.gm).__name__
        out = make_graph_module(self.gm, graph, name.lstrip("_") or "GraphModule")
        out.meta.update(self.gm.meta)
        return out

    def resolve(self, x: Any) -> Any:
        """Values and symbolic numbers in arguments to the rows that make them."""
        t = type(x)
        if t is Value or t is Opaque:
            return x.row
        if t is int or t is float or t is str or t is bool or x is None:
            return x
        if t is tuple or t is list:
            return t([self.resolve(y) for y in x])
        if t in (torch.SymInt, torch.SymFloat, torch.SymBool):
            return self.symbols.row(x)
        if t is dict:
            return {k: self.resolve(v) for k, v in x.items()}
        if isinstance(x, slice):
            return slice(self.resolve(x.start), self.resolve(x.stop), self.resolve(x.step))
        return x

    def mark(self, out_args: Any) -> None:
        """Find what is needed: outputs, inputs, random and effectful rows, and all they read. Resolves their
        arguments on the way.
        """
        stack = [r for r in self.recorder.rows if r.keep]
        _collect(out_args, stack)
        while stack:
            row = stack.pop()
            if row.live:
                continue
            row.live = True
            if row.op != "call_function":
                continue
            self.recorder.source = row.source
            row.args = self.resolve(row.args)
            _collect(row.args, stack)
            if row.kwargs:
                row.kwargs = self.resolve(row.kwargs)
                _collect(row.kwargs, stack)

    def order(self, rows: list[Row]) -> list[Row]:
        """Live rows in recorded order; rows of symbolic sizes, made late, move before their first reader."""
        done: set[int] = set()
        out: list[Row] = []

        def visit(row: Row) -> None:
            if id(row) in done:
                return
            done.add(id(row))
            if row.op == "call_function":
                needs: list[Row] = []
                _collect(row.args, needs)
                if row.kwargs:
                    _collect(row.kwargs, needs)
                for n in needs:
                    if id(n) not in done:
                        visit(n)
            out.append(row)

        for row in rows:
            if row.live:
                visit(row)
        return out


def _read(x: Any, env: dict[Any, Any]) -> Any:
    """Arguments of an FX node with nodes replaced by their values; containers become plain lists and tuples."""
    t = type(x)
    if t is fx.Node:
        return env[x]
    if t is tuple:
        return tuple([_read(y, env) for y in x])
    if isinstance(x, list):
        return [_read(y, env) for y in x]
    if isinstance(x, dict):
        return {k: _read(v, env) for k, v in x.items()}
    if t is slice:
        return slice(_read(x.start, env), _read(x.stop, env), _read(x.step, env))
    return x


def _collect(x: Any, into: list[Any]) -> None:
    t = type(x)
    if t is Row:
        into.append(x)
    elif t is tuple or t is list:
        for y in x:
            u = type(y)
            if u is Row:
                into.append(y)
            elif u is tuple or u is list:
                _collect(y, into)
            elif u is slice or u is dict:
                _collect(y, into)
    elif t is dict:
        for y in x.values():
            _collect(y, into)
    elif t is slice:
        _collect((x.start, x.stop, x.step), into)


def _nodes(x: Any) -> Any:
    t = type(x)
    if t is Row:
        return x.node
    if t is tuple or t is list:
        return t([_nodes(y) for y in x])
    if t is dict:
        return {k: _nodes(v) for k, v in x.items()}
    if t is slice:
        return slice(_nodes(x.start), _nodes(x.stop), _nodes(x.step))
    return x


def _nodes_of_dict(x: dict[Any, Any]) -> dict[Any, Any]:
    return {k: _nodes(v) for k, v in x.items()} if x else {}


def _any_opaque(args: Any) -> bool:
    return any(type(a) is Opaque or (isinstance(a, (list, tuple)) and _any_opaque(a)) for a in args)


def _meta_of(val: Any) -> Any:
    """What the recorder makes results from: TensorMeta for a strided tensor, the structure for a tuple, the thing
    itself otherwise.
    """
    if val is None:
        return None
    if type(val) is Value:
        return TensorMeta(val.shape, val._stride, val.dtype, val.device)
    if hasattr(val, "dtype") and hasattr(val, "stride"):
        if val.layout is not torch.strided:
            return val
        return TensorMeta(tuple(val.shape), tuple(val.stride()), val.dtype, val.device)
    if isinstance(val, (tuple, list)):
        return tuple(_meta_of(v) for v in val)
    return val


def _has_effects(target: Any) -> bool:
    """Random, mutating, or unknown callables are neither dropped nor merged."""
    if isinstance(target, Prim):
        return target.is_random
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__module__", "") not in ("_operator", "operator", "math", "torch")
    if schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
        return True
    return not schema.returns or target.namespace not in ("aten", "prims")


def _makes_alias(node: fx.Node) -> bool:
    """Does eager's op return views? An item is what the op that made the tuple returns."""
    while node.target is _getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    return any(r.alias_info is not None for r in schema.returns)


def _is_alias(row: Row) -> bool:
    """The result may share memory with an input or another value when run eagerly."""
    if row.op != "call_function":
        return True
    target = row.target
    if isinstance(target, Prim):
        return "view" in target.spec.tags and target is not restride and target.name != "flip"
    return False
