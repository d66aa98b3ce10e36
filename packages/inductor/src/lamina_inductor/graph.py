"""FX graph of prims -> loop-level IR.

`GraphLowering` walks the graph once. Each node's value becomes a `TensorValue`, lazy where possible; what must be in
memory (graph
outputs, operands of extern calls, results of reductions, values that are used often and cost something) is realised
as a `LoopNode`. Nodes without a lowering become
`ExternNode` with eager's semantics, and `GraphLowering.reasons` says why.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lamina_primtorch.prims import PRIMS

from .codegen.native_kernel import NativeOp
from .config import Config
from .errors import InductorError, LoweringError, UnsupportedGraph
from .index import ONE, Expr, unwrap
from .ir.extern import ExternNode
from .ir.layout import Layout, contiguous_strides, same_strides
from .ir.loops import Builder, Index, Inner, LoopNode, loop_index, loop_vars
from .ir.program import BufferDecl, BufferRef, KernelCall, Output
from .ir.region import RegionCallee, is_region
from .ir.tensor import TensorValue
from .layout_pass import LayoutPlan, channels_last_strides, choose_layouts
from .lowering.left_to_library import operator_for
from .lowering.matmul import choose_product
from .lowering.outputs import ALIASING, is_dense, output_of
from .lowering.region import lower_region
from .lowering.registry import load_lowerings
from .lowering.templates import Template, plan_templates
from .ops import FLOAT8, Op
from .passes import is_on
from .sizes import SizeTable

SUPPORTED = {
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32,
    torch.int64,
}  # fmt: skip

# what is done with float8 values inside kernels, where the target has them; eager can do little more
FLOAT8_PRIMS = frozenset("convert_element_type clone broadcast_in_dim permute reshape slice restride".split())

VIEWS = ALIASING | {"flip", "restride"}

# ATen ops with an out variant that writes exactly the strides given: their results get planned memory
WRITES_INTO = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}


class ResultMeta:
    """dtype, device, shape and stride (expressions) of one result of the current node. `physical`: the strides it is to
    have in memory, where these are not eager's (see `layout_pass`)."""

    __slots__ = ("dtype", "device", "shape", "stride", "physical")

    def __init__(
        self, dtype: torch.dtype, device: torch.device, shape: tuple[Expr, ...], stride: tuple[Expr, ...]
    ) -> None:
        self.dtype, self.device, self.shape, self.stride = dtype, device, shape, stride
        self.physical: tuple[Expr, ...] | None = None


class GraphLowering:
    """Lowers one graph. After `run()`: `buffers`, `nodes`, `outputs`, `constants`, `bindings`, `reasons`, `pinned`."""

    supported = SUPPORTED

    def __init__(
        self,
        gm: GraphModule,
        config: Config,
        can_lower: Callable[[str, torch.dtype], str | None] = lambda op, dtype: None,
        example_inputs: Sequence[Any] | None = None,
        input_layouts: Sequence[Layout] | None = None,
    ) -> None:
        self.gm = gm
        self.config = config
        self.can_lower = can_lower
        self.example_inputs = example_inputs
        self.input_layouts = input_layouts  # of a region: how its arguments lie in memory where it is called
        self.regions: dict[Any, RegionCallee] = {}
        self.region_log: list[Any] = []
        self.sizes = SizeTable()
        self.buffers: dict[str, BufferDecl] = {}
        self.nodes: list[LoopNode | ExternNode] = []
        self.outputs: list[Output] = []
        self.constants: list[torch.Tensor] = []
        self.bindings: dict[str, tuple[int, str, int]] = {}
        self.reasons: list[tuple[str, str]] = []
        self.pinned: set[str] = set()
        self.alone: set[str] = set()  # memory of outputs that share it with no other
        self.input_count = 0
        self.env: dict[Node, Any] = {}
        self.templates: dict[Node, Template] = {}  # by their last node
        self.waiting: set[Node] = set()  # parts of templates: lowered with the last one
        self.inlines = False  # nothing is stored for cheaper reading: values are traced for one position
        # values of nodes ahead that an earlier node computed with its own (a node: the value of that one)
        self.ready: dict[Node, TensorValue | Node] = {}
        self.node: Node | None = None
        self._table = load_lowerings()
        self._answers: dict[tuple[str, torch.dtype], str | None] = {}
        self._counter = 0
        self._uses: dict[Node, int] = {}
        self._bound: set[str] = set()
        self._metas: list[ResultMeta] = []
        self.device = torch.device("cpu")
        self.layouts: LayoutPlan | None = None
        self.output_strides: list[tuple[int, ...] | None] = []
        self._copies: dict[tuple, TensorValue] = {}

    # ---- metadata ----

    def expr(self, value: Any) -> Expr:
        """The expression of an int, SymInt or Expr."""
        return self.sizes.expr(value)

    def exprs(self, values: Any) -> tuple[Expr, ...]:
        """`expr` of each."""
        return tuple(self.sizes.expr(v) for v in values)

    def meta_of(self, val: Any) -> ResultMeta:
        """Metadata of a tensor `val`."""
        return ResultMeta(val.dtype, val.device, self.exprs(val.shape), self.exprs(val.stride()))

    def result(self, k: int = 0) -> ResultMeta:
        """Metadata of the current node's k-th result."""
        return self._metas[k]

    def storage_offset(self, k: int) -> Expr:
        """Storage offset of the k-th tensor argument of the current node, as eager has it."""
        assert self.node is not None
        tensors = [a for a in self.node.args if isinstance(a, Node)]
        return self.expr(tensors[k].meta["val"].storage_offset())

    def require(self, op: str, dtype: torch.dtype) -> None:
        """Raises LoweringError when the target cannot generate `op` in `dtype`."""
        key = (op, dtype)
        if key not in self._answers:
            self._answers[key] = self.can_lower(op, dtype)
        reason = self._answers[key]
        if reason is not None:
            raise LoweringError(reason)

    # ---- values ----

    def lazy(self, meta: ResultMeta, inner: Inner, *, cost: int = 0, reads: int = 0) -> TensorValue:
        """A value that its consumers compute."""
        origins = (self.node.name,) if self.node is not None else ()
        out = TensorValue(meta.dtype, meta.device, meta.shape, inner=inner, cost=cost, reads=reads, origins=origins)
        out.stride, out.physical = meta.stride, meta.physical
        return out

    def stored(self, meta: ResultMeta, buffer: str, layout: Layout) -> TensorValue:
        """A value in memory."""
        out = TensorValue(meta.dtype, meta.device, meta.shape, buffer=buffer, layout=layout)
        out.stride = meta.stride
        return out

    def fresh(self) -> str:
        """A name for an indirect index."""
        self._counter += 1
        return f"ind{self._counter}"

    def builder(self) -> Builder:
        """A builder for one body."""
        return Builder(lambda name: self.buffers[name].layout.dtype, self.fresh)

    def new_buffer(self, meta: ResultMeta, *, stride: Sequence[Expr] | None = None) -> tuple[str, Layout]:
        """A new temporary with the planned strides, eager's where these are dense (or with `stride`)."""
        if stride is None and meta.physical is not None:
            stride = meta.physical
        elif stride is None:
            stride = meta.stride if is_dense(meta.shape, meta.stride) else contiguous_strides(meta.shape)
        layout = Layout(meta.dtype, meta.device, meta.shape, tuple(stride))
        name = f"buf{len(self.buffers)}"
        self.buffers[name] = BufferDecl(name, layout, "temp")
        return name, layout

    def realize(self, x: TensorValue, stride: Sequence[Expr] | None = None) -> TensorValue:
        """Puts a lazy value into a buffer of its own."""
        if x.is_stored or (stride is None and x.try_store()):
            return x
        meta = ResultMeta(x.dtype, x.device, x.shape, x.stride if x.stride is not None else contiguous_strides(x.shape))
        meta.physical = x.physical
        name, layout = self.new_buffer(meta, stride=stride)
        self.store_node(x, name, layout)
        x.buffer, x.layout, x.inner, x.base = name, layout, None, None
        return x

    def copy_of(self, x: TensorValue, stride: Sequence[Expr]) -> TensorValue:
        """A copy of a stored value in a new buffer with the given strides."""
        if x.dtype not in SUPPORTED and x.dtype not in FLOAT8:
            return self._library_copy(x, stride)
        out = TensorValue(
            x.dtype, x.device, x.shape, inner=lambda b, index: x.load(b, index), reads=1, origins=x.origins
        )
        out.stride = tuple(stride)
        return self.realize(out, stride)

    def _library_copy(self, x: TensorValue, stride: Sequence[Expr]) -> TensorValue:
        """`copy_of` in a dtype that kernels do not carry: a call of the prim that lays values out."""
        assert x.buffer is not None and x.layout is not None
        meta = ResultMeta(x.dtype, x.device, x.shape, tuple(stride))
        name = f"buf{len(self.buffers)}"
        layout = Layout(x.dtype, x.device, x.shape, meta.stride)
        self.buffers[name] = BufferDecl(name, layout, "temp")
        whole = self.buffers[x.buffer].layout
        operand = BufferRef(x.buffer, None if whole == x.layout else x.layout)
        args = (operand, [unwrap(e) for e in stride])
        reads: dict[str, list] = {x.buffer: []}
        self._add(ExternNode(len(self.nodes), PRIMS["restride"], args, {}, (name,), reads, {name: []},
                             origins=self._origins(x), reason=f"a copy of {x.dtype}"))  # fmt: skip
        return self.stored(meta, name, layout)

    def store_deep(self, x: TensorValue) -> TensorValue:
        """Stores a value; a view of a lazy value is made by storing its base first, so that the view itself needs no
        copy."""
        if x.is_stored or x.try_store():
            return x
        if x.base is not None and x.restride is not None:
            layout_known = x.base.stride is not None and x.restride(
                Layout(x.dtype, x.device, x.base.shape, x.base.stride)
            )
            if layout_known:
                self.store_deep(x.base)
                if x.try_store():
                    return x
        return self.realize(x)

    def store_as_eager(self, x: TensorValue) -> TensorValue:
        """Stores a value with eager's strides (for ops that look at memory, and extern calls)."""
        self.store_deep(x)
        assert x.layout is not None
        if (
            x.stride is not None
            and not same_strides(x.shape, x.layout.stride, x.stride)
            and is_dense(x.shape, x.stride)
        ):
            copy = self.copy_of(x, x.stride)
            x.buffer, x.layout = copy.buffer, copy.layout
        return x

    def store_with_strides(self, x: TensorValue, stride: Sequence[Expr]) -> TensorValue:
        """`x` in memory with the given dense strides: x itself where it has them, else a copy (made once)."""
        if not x.is_stored and x.base is None:
            self.realize(x, stride)
        self.store_deep(x)
        assert x.layout is not None and x.buffer is not None
        if same_strides(x.shape, x.layout.stride, stride):
            return x
        key = (x.buffer, x.layout, tuple(stride))
        found = self._copies.get(key)
        if found is None:
            found = self._copies[key] = self.copy_of(x, stride)
        return found

    # ---- loop nodes ----

    def _add(self, node: Any) -> Any:
        self.nodes.append(node)
        return node

    def _origins(self, *values: TensorValue) -> tuple[str, ...]:
        names = [n for v in values for n in v.origins]
        if self.node is not None and self.node.op == "call_function":
            names.append(self.node.name)
        return tuple(dict.fromkeys(names))

    def store_node(self, x: TensorValue, buffer: str, layout: Layout) -> LoopNode:
        """A pointwise node that writes `x` into `buffer` at `layout`."""
        k = len(self.nodes)
        loops = loop_vars("d", x.shape, "parallel")
        index = tuple(loop_index(v) for v in loops)
        b = self.builder()
        b.store(buffer, layout.index(index), x.load(b, index))
        return self._add(LoopNode(k, loops, (), b.ops, [], self._origins(x)))

    def reduction_node(
        self,
        outer: Sequence[Expr],
        inner: Sequence[Expr],
        body: Callable[[Builder, Index, Index], list[Op]],
        finish: Sequence[Callable[[Builder, list[Op]], Op]],
        metas: Sequence[ResultMeta],
        source: TensorValue,
    ) -> tuple[TensorValue, ...]:
        """A reduction over `inner` for each of `outer`; result k is stored with metas[k] (whose shape is `outer`)."""
        k = len(self.nodes)
        outer_loops = loop_vars("d", outer, "parallel")
        inner_loops = loop_vars("e", inner, "reduction") or loop_vars("e", [ONE], "reduction")
        at = tuple(loop_index(v) for v in outer_loops)
        b = self.builder()
        results = body(b, at, tuple(loop_index(v) for v in inner_loops)[: len(inner)])
        ops = b.next_phase()
        out = []
        for fn, meta in zip(finish, metas, strict=True):
            name, layout = self.new_buffer(meta)
            b.store(name, layout.index(at), fn(b, results))
            out.append(self.stored(meta, name, layout))
        self._add(LoopNode(k, outer_loops, inner_loops, ops, b.ops, self._origins(source)))
        return tuple(out)

    def scan_node(
        self,
        shape: Sequence[Expr],
        axis: int,
        body: Callable[[Builder, Index], list[Op]],
        metas: Sequence[ResultMeta],
        source: TensorValue,
    ) -> tuple[TensorValue, ...]:
        """A scan along `axis`; result k has metas[k]."""
        k = len(self.nodes)
        outer_loops = loop_vars("d", [s for d, s in enumerate(shape) if d != axis], "parallel")
        inner_loops = loop_vars("e", [shape[axis]], "scan")
        at = [loop_index(v) for v in outer_loops]
        at.insert(axis, loop_index(inner_loops[0]))
        b = self.builder()
        results = body(b, tuple(at))
        out = []
        for result, meta in zip(results, metas, strict=True):
            name, layout = self.new_buffer(meta)
            b.store(name, layout.index(at), result)
            out.append(self.stored(meta, name, layout))
        self._add(LoopNode(k, outer_loops, inner_loops, b.ops, [], self._origins(source)))
        return tuple(out)

    def scatter_node(
        self,
        x: TensorValue,
        shape: Sequence[Expr],
        serial: Sequence[int],
        body: Callable[[Builder, Index], tuple[Index, Op]],
        mode: str | None,
        reuse: bool = False,
    ) -> TensorValue:
        """A copy of `x` into which every position of `shape` stores one element; `serial` dimensions may collide.
        With `reuse`, nobody else reads `x`: where it has memory of its own, that is written to instead of a copy."""
        meta = self.result()
        if reuse and x.buffer is not None and self.owns_memory(x):
            assert x.layout is not None
            name, layout = x.buffer, x.layout
        else:
            name, layout = self.new_buffer(meta)
            self.store_node(x, name, layout)
        k = len(self.nodes)
        serial = set(serial)
        loops = tuple(
            type(v)(v.name, v.size, "serial" if d in serial else "parallel")
            for d, v in enumerate(loop_vars("d", shape, "parallel"))
        )
        b = self.builder()
        where, value = body(b, tuple(loop_index(v) for v in loops))
        b.store(name, layout.index(where), value, mode)
        self._add(LoopNode(k, loops, (), b.ops, [], self._origins(), True))
        return self.stored(meta, name, layout)

    def owns_memory(self, x: TensorValue) -> bool:
        """True for a value that fills a buffer made here."""
        decl = self.buffers[x.buffer]  # type: ignore[index]
        return decl.kind == "temp" and decl.layout == x.layout and x.buffer not in self.pinned

    # ---- the walk ----

    def run(self) -> GraphLowering:
        """Lowers the whole graph; raises UnsupportedGraph when it cannot be handled at all."""
        self._count_uses()
        if self.input_layouts is None and is_on("layout"):  # the results of a region lie as eager's
            self.layouts = choose_layouts(self.gm.graph)
        self.device = self._main_device()
        self.templates = plan_templates(self)
        self.waiting = {part for t in self.templates.values() for part in t.parts}
        for node in self.gm.graph.nodes:
            if node not in self.waiting:
                self._visit(node)
        self.node = None
        return self

    def _visit(self, node: Node) -> None:
        self.node = node
        visit = self._visitors.get(node.op)
        if visit is None:
            raise UnsupportedGraph(f"{node.op} node", node=node.name)
        try:
            found = self.templates.get(node)
            value = found.lower(self) if found is not None else None
            if found is not None and value is None:
                for part in found.parts:
                    self.waiting.discard(part)
                    self._visit(part)
                self.node = node
            self.env[node] = visit(self, node) if value is None else value
        except InductorError:
            raise
        except Exception as error:
            raise InductorError(
                f"internal error while lowering {node.format_node()}: {type(error).__name__}: {error}",
                node=node.name,
                source=_user_line(node),
                hint="please report this",
            ) from error

    def _main_device(self) -> torch.device:
        """Where the kernels run: the first device in the graph that is not the CPU. Calls on other tensors stay
        externs."""
        for node in self.gm.graph.nodes:
            val = node.meta.get("val")
            for v in val if isinstance(val, (tuple, list)) else (val,):
                if is_tensor(v) and v.device.type not in ("cpu", "meta"):
                    return v.device
        for v in self.example_inputs or ():
            if is_tensor(v) and v.device.type not in ("cpu", "meta"):
                return v.device
        return torch.device("cpu")

    def _count_uses(self) -> None:
        """How many computations read each node, looking through views."""
        uses = self._uses
        for node in reversed(self.gm.graph.nodes):
            total = 0
            for user in node.users:
                name = getattr(user.target, "name", "") if user.op == "call_function" else ""
                total += uses.get(user, 1) if name in VIEWS else 1
            uses[node] = total

    def _placeholder(self, node: Node) -> Any:
        k = self.input_count
        self.input_count += 1
        val = node.meta.get("val")
        if val is None and self.example_inputs is not None and k < len(self.example_inputs):
            val = self.example_inputs[k]
        if is_tensor(val):
            if getattr(val, "layout", torch.strided) != torch.strided:
                raise UnsupportedGraph(f"input of layout {val.layout}", node=node.name)
            meta = self.meta_of(val)
            for what, dims in (("size", meta.shape), ("stride", meta.stride)):
                for d, e in enumerate(dims):
                    if e.op == "sym":
                        self.bindings.setdefault(e.args[0], (k, what, d))
            name = f"in{k}"
            given = node.meta.get("physical_stride")
            stride = meta.stride if given is None else self.exprs(given)
            layout = Layout(meta.dtype, meta.device, meta.shape, stride)
            if self.input_layouts is not None:
                layout = self.input_layouts[k]
            self.buffers[name] = BufferDecl(name, layout, "input", k)
            return self.stored(meta, name, layout)
        if isinstance(val, torch.SymInt):
            e = self.expr(val)
            if e.op == "sym":
                self.bindings[e.args[0]] = (k, "int", 0)
            return e
        if isinstance(val, (bool, int, float)) or val is None:
            if node.users and not isinstance(val, (bool, int, float)):
                raise UnsupportedGraph("input without metadata", node=node.name)
            return val
        raise UnsupportedGraph(f"input of type {type(val).__name__}", node=node.name)

    def _get_attr(self, node: Node) -> Any:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        return self.constant(value)

    def constant(self, value: torch.Tensor) -> TensorValue:
        """A tensor that the compiled graph keeps. One in a layout of oneDNN's own has no strides; it may only be an
        operand of the library's calls."""
        if value.layout == torch.strided:
            meta = self.meta_of(value)
        else:
            shape = self.exprs(value.shape)
            meta = ResultMeta(value.dtype, value.device, shape, contiguous_strides(shape))
        name = f"const{len(self.constants)}"
        layout = Layout(meta.dtype, meta.device, meta.shape, meta.stride)
        self.buffers[name] = BufferDecl(name, layout, "constant", len(self.constants))
        self.constants.append(value)
        return self.stored(meta, name, layout)

    def _value(self, a: Any) -> Any:
        if isinstance(a, Node):
            return self.env[a]
        if isinstance(a, (tuple, list)):
            return type(a)(self._value(x) for x in a) if type(a) in (tuple, list) else [self._value(x) for x in a]
        if isinstance(a, dict):
            return {k: self._value(v) for k, v in a.items()}
        if isinstance(a, slice):
            raise LoweringError("slice object as an argument")
        return a

    def _call(self, node: Node) -> Any:
        if node in self.ready:
            known = self.ready[node]
            return self.env[known] if isinstance(known, Node) else known
        target = node.target
        if target is operator.getitem:
            source = self.env[node.args[0]]  # type: ignore[index]
            if isinstance(source, (tuple, list)):
                return source[node.args[1]]  # type: ignore[index]
        val = node.meta.get("val")
        if isinstance(val, (bool, int, float)) and not isinstance(val, torch.SymInt):
            if not self._reads_data(node):
                return val
        if isinstance(val, torch.SymInt) and not self._reads_data(node):
            return self.expr(val)
        args = self._value(node.args)
        name = getattr(target, "name", None)
        name = name if isinstance(name, str) else None
        kwargs = self._value(dict(node.kwargs))
        vals = list(val) if isinstance(val, (tuple, list)) else [val]
        self._metas = [self.meta_of(v) if is_tensor(v) else None for v in vals]  # type: ignore[misc]
        if self.layouts is not None:
            self._plan_strides(node, isinstance(val, (tuple, list)))
        if is_region(target):
            return self._extern(node, lower_region(self, node, args), args, {}, val)
        reason = None
        fn = self._table.get(name) if name is not None else None
        left = operator_for(self, name, args) if is_on("library") else None
        if left is not None:
            reason, target = "the library's kernel is the faster one", left
        elif fn is not None:
            reason = self._unsupported(args, name) or self._unsupported(self._metas, name)
            if reason is None:
                before = len(self.nodes), len(self.buffers)
                try:
                    out = fn(self, *[_numbers(a) for a in args], **kwargs)
                except LoweringError as error:
                    if isinstance(error, UnsupportedGraph):
                        raise
                    reason = error.message
                    del before
                else:
                    self._keep_if_shared(node, out)
                    return out
        elif name is not None and "extern" not in getattr(getattr(target, "spec", None), "tags", ()):
            reason = "no lowering"
        if reason:
            self.reasons.append((node.name, f"{target}: {reason}"))
        return self._extern(node, target, args, kwargs, val)

    def _plan_strides(self, node: Node, several: bool) -> None:
        assert self.layouts is not None
        planned = self.layouts.strides.get(node)
        if planned is not None:
            for meta, stride in zip(self._metas, planned if several else (planned,), strict=True):
                if stride is not None:
                    meta.physical = self.exprs(stride)

    def _reads_data(self, node: Node) -> bool:
        return any(isinstance(a, Node) and is_tensor(a.meta.get("val")) for a in node.args) and not _is_size_query(node)

    def _unsupported(self, values: Any, prim: str) -> str | None:
        for v in values:
            if isinstance(v, (tuple, list)):
                reason = self._unsupported(v, prim)
                if reason is not None:
                    return reason
            elif isinstance(v, (TensorValue, ResultMeta)):
                if v.dtype in FLOAT8 and prim in FLOAT8_PRIMS:
                    reason = self.can_lower("float8", v.dtype)
                    if reason is not None:
                        return reason
                elif v.dtype not in SUPPORTED:
                    return f"dtype {v.dtype}"
                if v.device.type != self.device.type:
                    return f"device {v.device}"
        return None

    def _keep_if_shared(self, node: Node, out: Any) -> None:
        """Realises a value that several computations use, unless repeating it costs next to nothing."""
        if not isinstance(out, TensorValue) or out.is_stored or self._uses.get(node, 1) < 2:
            return
        if self.inlines or getattr(node.target, "name", "") in VIEWS:
            return
        cost, reads = REPEATABLE["cpu" if out.device.type == "cpu" else "device"]
        if out.cost > cost or out.reads > reads:
            self.realize(out)

    # ---- extern calls ----

    def extern(self, args: Any, kwargs: Any, val: Any, target: Any = None) -> Any:
        """The current node's op (or `target`) called with other arguments; `val`: its results' metadata, None for those
        not made."""
        assert self.node is not None
        return self._extern(self.node, target or self.node.target, args, kwargs, val)

    def native_node(self, op: NativeOp, operands: Sequence[TensorValue], meta: ResultMeta) -> TensorValue:
        """A call of a hand-written kernel on stored operands; its result is contiguous."""
        name, layout = self.new_buffer(meta, stride=contiguous_strides(meta.shape))
        self.kernel_call(op, [str(x.buffer) for x in operands], [name])
        return self.stored(meta, name, layout)

    def update_node(self, target: Any, base: TensorValue, operands: Sequence[TensorValue]) -> TensorValue:
        """A call of an op that writes its result over its first operand `base`, which nobody else reads."""
        assert self.node is not None and base.buffer is not None and base.layout is not None
        reads: dict[str, list] = {}
        args = tuple(self._reference(a, reads) for a in (base, *operands))
        writes: dict[str, list] = {base.buffer: []}
        origins, results = (self.node.name,), (base.buffer,)
        self._add(ExternNode(len(self.nodes), target, args, {}, results, reads, writes, origins=origins, out=True))
        return self.stored(self.result(), base.buffer, base.layout)

    def _reference(self, a: Any, reads: dict[str, list], last: bool = False) -> Any:
        """An argument of an extern call; tensors are put into memory and noted in `reads`. `last`: channels-last."""
        if isinstance(a, TensorValue):
            if last:
                a = self.store_with_strides(a, self.exprs(channels_last_strides(a.shape)))
            else:
                self.store_as_eager(a)
            assert a.buffer is not None and a.layout is not None
            reads.setdefault(a.buffer, [])
            whole = self.buffers[a.buffer].layout
            return BufferRef(a.buffer, None if whole == a.layout else a.layout)
        if isinstance(a, (tuple, list)):
            return [self._reference(x, reads) for x in a]
        if isinstance(a, dict):
            return {k: self._reference(v, reads) for k, v in a.items()}
        return unwrap(a) if isinstance(a, Expr) else a

    def kernel_call(self, op: NativeOp, operands: Sequence[str], results: Sequence[str]) -> None:
        """A call of a kernel that reads and writes these buffers."""
        refs = tuple(BufferRef(x) for x in operands)
        reads: dict[str, list] = {r.name: [] for r in refs}
        writes: dict[str, list] = {x: [] for x in results}
        assert self.node is not None
        origins = (self.node.name,)
        self._add(ExternNode(len(self.nodes), op, refs, {}, tuple(results), reads, writes, origins=origins, out=True))

    def _extern(self, node: Node, target: Any, args: Any, kwargs: Any, val: Any) -> Any:
        overload = getattr(getattr(target, "spec", None), "aten", None) or target
        schema = getattr(overload, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise UnsupportedGraph(f"{target} mutates its arguments", node=node.name)
        own, linear, form = choose_product(self, overload, args, kwargs)
        if own is not None:
            return own
        if linear is not None:
            target, args = linear
            kwargs, schema = {}, target._schema
        reads: dict[str, list] = {}
        turned = self.layouts.externs.get(node, ()) if self.layouts is not None else ()
        args = tuple(self._reference(a, reads, k in turned) for k, a in enumerate(args))
        kwargs = {k: self._reference(v, reads) for k, v in kwargs.items()}
        names: list[str | None] = []
        writes: dict[str, list] = {}
        scalars: list[tuple[int, str]] = []
        binds: list[tuple[str, str, int]] = []

        def declare(v: Any) -> Any:
            position = len(names)
            if is_tensor(v):
                meta = self._metas[position]
                name = f"buf{len(self.buffers)}"
                layout = Layout(meta.dtype, meta.device, meta.shape, meta.physical or meta.stride)
                self.buffers[name] = BufferDecl(name, layout, "temp")
                names.append(name)
                writes[name] = []
                for d, e in enumerate(meta.shape):
                    if e.op == "sym" and e.args[0] not in self.bindings and e.args[0] not in self._bound:
                        self._bound.add(e.args[0])
                        binds.append((e.args[0], name, d))
                return self.stored(meta, name, layout)
            names.append(None)
            if isinstance(v, torch.SymInt):
                e = self.expr(v)
                if e.op == "sym" and e.args[0] not in self.bindings:
                    self._bound.add(e.args[0])
                    scalars.append((position, e.args[0]))
                    return e
                raise UnsupportedGraph(f"{target} returns the size expression {e}", node=node.name)
            # a plain number beside tensors follows from their metadata (the lengths that fused attention returns)
            alone = not isinstance(val, (tuple, list))
            if isinstance(v, (torch.SymFloat, torch.SymBool)) or (
                isinstance(v, (bool, int, float)) and alone and self._reads_data(node)
            ):
                raise UnsupportedGraph(f"{target} returns a number that is not an integer size", node=node.name)
            return v

        out = tuple(declare(v) for v in val) if isinstance(val, (tuple, list)) else declare(val)
        call = getattr(target, "spec", None)
        callee = (call.aten or target) if call is not None else target
        tags = getattr(callee, "tags", ())
        effect = (
            getattr(target, "is_random", False)
            or torch.Tag.nondeterministic_seeded in tags
            or torch.Tag.data_dependent_output in tags
            or not writes
            or isinstance(target, RegionCallee)
            and _has_effect(target)
        )
        if isinstance(target, RegionCallee) and any(o.kind != "buffer" for o in target.program.outputs):
            self.pinned.update(reads)
            self.pinned.update(writes)
        if _returns_alias(schema) or "view" in getattr(getattr(target, "spec", None), "tags", ()):
            self.pinned.update(reads)
            self.pinned.update(writes)
        self._add(
            ExternNode(
                len(self.nodes), callee, args, kwargs, tuple(names), reads, writes, effect, tuple(scalars),
                tuple(binds), (node.name,), not binds and can_write_into(callee, val),
                reason=dict(self.reasons[-1:]).get(node.name, "extern"), form=form,
            )
        )  # fmt: skip
        return out

    # ---- outputs ----

    def _output(self, node: Node) -> None:
        result = node.args[0]
        taken: set[str] = set()
        free = self.layouts.free if self.layouts is not None else ()
        for k, a in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
            self.output_strides.append(None)
            self.outputs.append(output_of(self, a, taken, k in free))

    _visitors = {"placeholder": _placeholder, "get_attr": _get_attr, "call_function": _call, "output": _output}


# (arithmetic ops, loads) of a value with several users that each of them rather computes again than reads: arithmetic
# is
# nearly free on a device, where a stored value costs a write and a read of its own
REPEATABLE = {"cpu": (2, 1), "device": (16, 3)}


def is_tensor(val: Any) -> bool:
    """True for anything with the metadata of a tensor."""
    return hasattr(val, "dtype") and hasattr(val, "stride")


def _user_line(node: Node) -> str:
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    return " ".join(lines[-2:])


def can_write_into(target: Any, val: Any) -> bool:
    """True when the result of a call may be placed in memory chosen ahead: a matrix product with dense result."""
    schema = getattr(target, "_schema", None)
    if schema is None or schema.name not in WRITES_INTO or schema.overload_name or not is_tensor(val):
        return False
    return val.dtype in SUPPORTED


def _numbers(a: Any) -> Any:
    if isinstance(a, Expr):
        return unwrap(a)
    if isinstance(a, list):
        return [_numbers(x) for x in a]
    if isinstance(a, tuple):
        return tuple(_numbers(x) for x in a)
    return a


def _is_size_query(node: Node) -> bool:
    name = str(node.target)
    return "sym_size" in name or "sym_stride" in name or "sym_numel" in name or "sym_storage_offset" in name


def _has_effect(callee: RegionCallee) -> bool:
    steps = callee.program.steps
    return any(getattr(s, "effect", False) or (isinstance(s, KernelCall) and s.kernel.messages) for s in steps)


def _returns_alias(schema: Any) -> bool:
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


__all__ = ["GraphLowering", "ResultMeta", "is_dense"]
