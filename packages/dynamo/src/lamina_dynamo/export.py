"""`export`: one graph of a whole function, with its inputs, outputs and constraints, that can be saved and loaded
without running stored code.

A saved program is a zip archive: ``program.json`` (nodes, input and output structure, constraints) and ``state.pt``
(tensors, read with
``weights_only``). Loading resolves the names of torch's own functions and of nothing else.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import math
import os
import types
import zipfile
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import cache, trace_policy
from .convert_frame import Compiler
from .dynamic import mark_dynamic
from .errors import ConstraintError, ExportError
from .eval_frame import CompiledFunction
from .guards import ShapeExpr, TensorExpect
from .guards.kinds import evaluate_shape
from .roots import LocalSource
from .source import ItemSource, Source, TensorMetaSource

__all__ = ["Dim", "ExportedProgram", "InputSpec", "export", "load"]

FORMAT = 1
_ROOTS = ("torch", "operator", "_operator", "math", "builtins")


@dataclasses.dataclass(frozen=True)
class Dim:
    """A size that varies, in elements, from ``min`` to ``max`` (None: no bound)."""

    min: int | None = 2
    max: int | None = None

    def __post_init__(self) -> None:
        """TypeError for a bound that is no integer, ValueError for an empty range or a negative bound."""
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None and not isinstance(bound, int):
                raise TypeError(f"Dim: {name} is a number of elements or None, not {bound!r}")
            if bound is not None and bound < 0:
                raise ValueError(f"Dim: {name} is a number of elements and cannot be {bound}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"Dim: empty range: min {self.min} > max {self.max}")


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One flat input. ``shape``: sizes, None where any; ``dtype`` None: not a tensor, then ``value`` is the constant
    it must equal.
    """

    name: str
    dtype: str | None = None
    device: str | None = None
    shape: tuple[int | None, ...] = ()
    value: Any = None


@dataclasses.dataclass
class ExportedProgram:
    """A captured function. Call it like the original; ConstraintError names the input and the constraint that does
    not hold.

    ``graph_module``: one graph; its placeholders are ``placeholders``: ``("input", i)`` or ``("state", name)``.
    ``state``: parameters, buffers and other
    tensors that the function read, by name. ``outputs``: for each leaf of the result ``("graph", i)``, ``("input",
    i)``, ``("state", name)``, ``("number", i)`` (a number that the graph gives as a tensor) or
    ``("constant", value)``. ``relations``: ``(ShapeExpr, ((input, dim), ...))``.
    """

    graph_module: torch.fx.GraphModule
    inputs: list[InputSpec]
    placeholders: list[tuple[str, Any]]
    state: dict[str, torch.Tensor]
    outputs: list[tuple[str, Any]]
    relations: list[tuple[ShapeExpr, tuple[tuple[int, int], ...]]]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.in_spec:
            raise ConstraintError(
                f"the arguments have another structure than at export: expected {self.in_spec}, got {spec}"
            )
        self.check(leaves)
        given = [leaves[key] if what == "input" else self.state[key] for what, key in self.placeholders]
        results = self.graph_module(*given)
        table: dict[str, Callable[[Any], Any]] = {
            "graph": lambda i: results[i],
            "input": lambda i: leaves[i],
            "state": lambda name: self.state[name],
            "number": lambda i: results[i].item(),
            "constant": lambda value: value,
        }
        return pytree.tree_unflatten([table[what](key) for what, key in self.outputs], self.out_spec)

    def __repr__(self) -> str:
        """Inputs with their shapes, and the code; none of the state's values."""
        ins = ", ".join(
            f"{i.name}: {i.dtype.removeprefix('torch.')}[{', '.join('any' if n is None else str(n) for n in i.shape)}]"
            if i.dtype is not None else f"{i.name} = {i.value!r}" for i in self.inputs
        )
        limits = [e.text or e.expr for e, _ in self.relations]
        lines = [f"exported program ({ins})", *(f"  where {text}" for text in dict.fromkeys(limits))]
        lines += [f"  {name}: {str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in self.state.items()]
        return "\n".join([*lines, self.graph_module.code.strip()])

    def check(self, leaves: list[Any]) -> None:
        """Raises ConstraintError if the flat inputs break a constraint."""
        for spec, value in zip(self.inputs, leaves):
            if spec.dtype is None:
                if type(value) is not type(spec.value) or value != spec.value:
                    raise ConstraintError(
                        f"input {spec.name} is a constant of the program: expected {spec.value!r}, got {value!r}"
                    )
                continue
            if not isinstance(value, torch.Tensor):
                raise ConstraintError(f"input {spec.name} must be a tensor, got {type(value).__name__}")
            if str(value.dtype) != spec.dtype:
                raise ConstraintError(f"input {spec.name}: dtype must be {spec.dtype}, got {value.dtype}")
            if value.device.type != spec.device:
                raise ConstraintError(f"input {spec.name}: device must be {spec.device}, got {value.device.type}")
            if value.dim() != len(spec.shape):
                raise ConstraintError(f"input {spec.name}: {len(spec.shape)} dimensions are needed, got {value.dim()}")
            for dim, (want, have) in enumerate(zip(spec.shape, value.shape)):
                if want is not None and want != have:
                    raise ConstraintError(
                        f"input {spec.name}: shape[{dim}] must be {want}, got {have}",
                        hint=f"export with dynamic_shapes={{{spec.name!r}: {{{dim}: Dim()}}}} if it varies",
                    )
        for expr, where in self.relations:
            values = [int(leaves[i].shape[dim]) for i, dim in where]
            if not evaluate_shape(expr, values):
                names = ", ".join(f"{self.inputs[i].name}.shape[{dim}] = {v}" for (i, dim), v in zip(where, values))
                raise ConstraintError(f"constraint {expr.text or expr.expr} does not hold: {names}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program. Raises ExportError, naming the node, if something in it has no stored form."""
        document = {
            "format": FORMAT,
            "torch": torch.__version__,
            "inputs": [{**dataclasses.asdict(i), "value": _encode(i.value, i.name)} for i in self.inputs],
            "placeholders": self.placeholders,
            "outputs": [[what, _encode(key, "output")] for what, key in self.outputs],
            "relations": [[e.expr, list(e.names), e.text, [list(w) for w in where]] for e, where in self.relations],
            "in_spec": pytree.treespec_dumps(self.in_spec),
            "out_spec": pytree.treespec_dumps(self.out_spec),
            **_encode_graph(self.graph_module),
        }
        tensors = io.BytesIO()
        torch.save({k: v.detach() for k, v in self.state.items()}, tensors)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("program.json", json.dumps(document))
            archive.writestr("state.pt", tensors.getvalue())


def export(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Capture ``fn(*args, **kwargs)`` as one graph.

    ``dynamic_shapes``: ``{argument name or position: {dimension: Dim or None}}``; sizes not named are fixed. Tensors
    that ``fn`` reads from
    elsewhere (parameters, buffers, globals) become the program's state. Raises GraphBreakError if it is not one
    graph, ExportError if the result
    cannot be described, ConstraintError if ``dynamic_shapes`` names an input that is not there.
    """
    if not callable(fn):
        raise TypeError(f"export takes a function, method or module, not {type(fn).__name__}")
    if not isinstance(args, tuple | list):
        raise TypeError(f"args is a tuple with the positional arguments, not {type(args).__name__}")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(f"kwargs is a dict with the keyword arguments, not {type(kwargs).__name__}")
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, dict | tuple | list):
        raise ConstraintError("dynamic_shapes is a dict {argument: {dimension: Dim}}, or a tuple of the dicts, not "
                              f"{type(dynamic_shapes).__name__}")
    leaves, in_spec = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
    names = _leaf_names(fn, args, kwargs or {})
    _mark(dynamic_shapes, fn, args, kwargs or {})
    record: dict[str, Any] = {}

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        if "gm" in record:
            raise ExportError("the function gave more than one graph")
        record["gm"] = gm

        def run(*inputs: Any) -> Any:
            record["inputs"], record["results"] = inputs, gm.forward(*inputs)
            return record["results"]

        return run

    positional = _positional(fn, args, kwargs or {}, bool(dynamic_shapes))
    compiler = Compiler(backend, True, None)
    owner = cache.new_owner(compiler)
    with torch.no_grad():
        value = CompiledFunction(positional, owner)(*leaves)
    if "gm" not in record:
        raise ExportError("nothing was captured: the function has no tensor operations")
    entry = next((e for e in owner.entries if e.info.code is positional.__code__), None)
    if entry is None:
        raise ExportError("the function was not captured as one graph")
    value, numbers = value if dynamic_shapes else (value, [])
    return _describe(record, leaves, names, in_spec, value, entry.info.built.guards, numbers)


# Numbers of the result that follow from sizes vary with them: the graph computes them, one tensor for each leaf.
_NUMBERS = """
def numbers(value, out):
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for item in value:
            numbers(item, out)
    elif isinstance(value, dict):
        for item in value.values():
            numbers(item, out)
    elif type(value) is int:
        out.append(torch.full((), value, dtype=torch.int64))
    elif type(value) is float:
        out.append(torch.full((), value, dtype=torch.float64))
    else:
        out.append(None)
"""


def _positional(fn: Any, args: Any, kwargs: Any, dynamic: bool) -> Any:
    """A function of the flat inputs. It is made from text so that it belongs to no module, and so that its
    containers are displays. If sizes vary it returns a pair: the result, and its numbers as tensors.
    """

    def build(value: Any, leaves: list[Any]) -> str:
        if isinstance(value, dict) and type(value) is dict:
            return "{" + ", ".join(f"{k!r}: {build(v, leaves)}" for k, v in value.items()) + "}"
        if type(value) in (list, tuple):
            inner = "".join(build(v, leaves) + ", " for v in value)
            return f"[{inner}]" if type(value) is list else f"({inner})"
        if pytree.tree_structure(value) != pytree.tree_structure(0):
            raise ExportError(f"an argument of type {type(value).__name__} cannot be an input of an exported program")
        leaves.append(value)
        return f"leaves[{len(leaves) - 1}]"

    text = build((tuple(args), dict(kwargs)), [])
    result = "return fn(*a, **k)" if not dynamic else "r = fn(*a, **k)\n    n = []\n    numbers(r, n)\n    return r, n"
    source = f"{_NUMBERS}\ndef rebuilt(*leaves):\n    a, k = {text}\n    {result}\n"
    namespace: dict[str, Any] = {"fn": fn, "torch": torch}
    exec(compile(source, "<lamina export>", "exec"), namespace)  # noqa: S102 - text made here, of container displays only
    return namespace["rebuilt"]


def _argument_names(fn: Any, args: Any) -> list[str]:
    import inspect

    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        return list(inspect.signature(target).bind_partial(*args).arguments)[: len(args)]
    except (TypeError, ValueError):
        return []


def _leaf_names(fn: Any, args: Any, kwargs: Any) -> list[str]:
    known = _argument_names(fn, args)
    names = []
    for i, value in enumerate(args):
        name = known[i] if i < len(known) else f"args[{i}]"
        names += [name + pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(value)[0]]
    for name, value in kwargs.items():
        names += [name + pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(value)[0]]
    return names


def _mark(dynamic_shapes: Any, fn: Any, args: Any, kwargs: Any) -> None:
    if not dynamic_shapes:
        return
    known = _argument_names(fn, args)
    table = dict(enumerate(dynamic_shapes)) if isinstance(dynamic_shapes, (list, tuple)) else dict(dynamic_shapes)
    for key, dims in table.items():
        if not dims:
            continue
        if isinstance(key, int) and key < len(args):
            value = args[key]
        elif key in known:
            value = args[known.index(key)]
        elif key in kwargs:
            value = kwargs[key]
        else:
            raise ConstraintError(f"dynamic_shapes names {key!r}, which is no argument; there are {[*known, *kwargs]}")
        if not isinstance(value, torch.Tensor):
            raise ConstraintError(f"dynamic_shapes names {key!r}, which is no tensor but {type(value).__name__}")
        if not isinstance(dims, dict):
            raise ConstraintError(f"dynamic_shapes[{key!r}] is a dict {{dimension: Dim}}, not {type(dims).__name__}")
        for dim, spec in dims.items():
            spec = spec if isinstance(spec, Dim) else Dim()
            mark_dynamic(value, dim, min=spec.min, max=spec.max)


def _input_of(source: Source) -> int | None:
    if isinstance(source, ItemSource) and isinstance(source.base, LocalSource) and source.base.local_name == "leaves":
        return int(source.key)
    return None


def _describe(
    record: Any, leaves: Any, names: Any, in_spec: Any, value: Any, guards: Any, numbers: list[Any]
) -> ExportedProgram:
    gm = record["gm"]
    varying = _keep_varying_numbers(record, numbers)
    placeholders: list[tuple[str, Any]] = []
    state: dict[str, torch.Tensor] = {}
    for node, real in zip(gm.graph.find_nodes(op="placeholder"), record["inputs"]):
        source = node.meta.get("source")
        number = _input_of(source) if source is not None else None
        if number is not None:
            placeholders.append(("input", number))
        elif isinstance(real, torch.Tensor):
            name = source.name if source is not None else node.name
            state[name] = real
            placeholders.append(("state", name))
        elif isinstance(source, TensorMetaSource) and source.base is not None and _input_of(source.base) is not None:
            raise ExportError("a size that is an input of the graph by itself cannot be exported", node=node.name)
        else:
            raise ExportError(f"graph input {node.name} is neither a tensor nor a size", node=node.name)
    expected = {
        _input_of(g.source): g.value
        for g in guards
        if g.kind == "TENSOR" and isinstance(g.source, Source) and isinstance(g.value, TensorExpect)
    }
    inputs = []
    for i, (name, leaf) in enumerate(zip(names, leaves)):
        if isinstance(leaf, torch.Tensor):
            expect = expected.get(i)
            shape = expect.sizes if expect is not None and expect.sizes is not None else (None,) * leaf.dim()
            inputs.append(InputSpec(name, str(leaf.dtype), leaf.device.type, tuple(shape)))
        else:
            inputs.append(InputSpec(name, value=leaf))
    relations = []
    for guard in guards:
        if guard.kind != "SHAPE_EXPR" or not isinstance(guard.source, tuple):
            continue
        where = []
        for source in guard.source:
            number = (
                _input_of(source.base)
                if isinstance(source, TensorMetaSource) and source.what == "size" and source.base is not None
                else None
            )
            if number is None:
                break
            where.append((number, source.dim))  # type: ignore[attr-defined]
        else:
            text = guard.value.text
            for i, name in enumerate(names):
                text = text.replace(f"leaves[{i}]", name)
            relations.append((dataclasses.replace(guard.value, text=text), tuple(where)))
    out_leaves, out_spec = pytree.tree_flatten(value)
    if numbers and len(numbers) != len(out_leaves):
        raise ExportError("a container of the result cannot be followed, so that its numbers cannot vary with sizes",
                          hint="return lists, tuples and dicts")
    outputs = [("number", varying[i]) if i in varying else _output(leaf, record, leaves, state)
               for i, leaf in enumerate(out_leaves)]
    return ExportedProgram(gm, inputs, placeholders, state, outputs, relations, in_spec, out_spec)


def _keep_varying_numbers(record: Any, numbers: list[Any]) -> dict[int, int]:
    """Leaf of the result -> output of the graph that computes it, for numbers that follow from sizes. Constants among
    the outputs of the graph are dropped."""
    gm = record["gm"]
    output = gm.graph.output_node()
    of_number = {}
    for leaf, tensor in enumerate(numbers):
        for i, candidate in enumerate(record["results"]):
            if tensor is not None and candidate is tensor:
                of_number[i] = leaf
    constant = {i for i in of_number if not output.args[0][i].all_input_nodes}
    if constant:
        kept = [i for i in range(len(output.args[0])) if i not in constant]
        dropped = [output.args[0][i] for i in constant]
        output.args = (tuple(output.args[0][i] for i in kept),)
        for node in dropped:
            if not node.users:
                gm.graph.erase_node(node)
        gm.recompile()
        record["results"] = tuple(record["results"][i] for i in kept)
        of_number = {new: of_number[i] for new, i in enumerate(kept) if i in of_number}
    return {leaf: i for i, leaf in of_number.items()}


def _output(leaf: Any, record: Any, leaves: Any, state: Any) -> tuple[str, Any]:
    if isinstance(leaf, torch.Tensor):
        for what, values in (
            ("graph", enumerate(record["results"])),
            ("input", enumerate(leaves)),
            ("state", state.items()),
        ):
            for key, candidate in values:
                if candidate is leaf:
                    return what, key
        raise ExportError("a tensor of the result comes neither from the graph nor from the inputs")
    if isinstance(leaf, (int, float, str, bool, type(None), torch.dtype, torch.device)):
        return "constant", leaf
    raise ExportError(f"a result of type {type(leaf).__name__} cannot be described")


# ----------------------------------------------------------------------------------------------------------------
# stored form
_NAMED: dict[type, str] = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


def _encode(value: Any, where: str) -> Any:
    """A JSON form: plain values as they are, everything else as ``{"kind": value}``."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value if isinstance(value, int) or math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if type(value) in _NAMED:
        return {_NAMED[type(value)]: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, slice):
        return {"slice": [_encode(v, where) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_encode(v, where) for v in value]}
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"dict": {k: _encode(v, where) for k, v in value.items()}}
    raise ExportError(f"a value of type {type(value).__name__} has no stored form", node=where)


def _decode(value: Any, nodes: dict[str, torch.fx.Node]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "node":
        return nodes[inner]
    if kind == "float":
        return float(inner)
    if kind == "complex":
        return complex(*inner)
    if kind in ("dtype", "layout", "memory_format"):
        found = getattr(torch, str(inner))
        if not isinstance(found, (torch.dtype, torch.layout, torch.memory_format)):
            raise ExportError(f"{inner!r} is no {kind}")
        return found
    if kind == "device":
        return torch.device(inner)
    if kind == "slice":
        return slice(*(_decode(v, nodes) for v in inner))
    if kind == "ellipsis":
        return Ellipsis
    if kind in ("list", "tuple"):
        items = [_decode(v, nodes) for v in inner]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {k: _decode(v, nodes) for k, v in inner.items()}
    raise ExportError(f"unknown kind of value {kind!r} in a stored program")


def _target_name(target: Any, node: str) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"op:{target.namespace}:{target._schema.name.split('::')[1]}:{target._overloadname}"
    for own, function in _own_functions().items():
        if function is target:
            return f"lamina:{own}"
    # Functions of torch._C carry the name of a class that holds them in __qualname__.
    name = getattr(target, "__name__", None)
    candidates = [
        getattr(target, "__module__", None),
        "torch",
        "torch.nn.functional",
        "torch._C._nn",
        "torch.linalg",
        "torch.special",
        "torch.fft",
        "operator",
    ]
    for module in dict.fromkeys(candidates):
        if module and name and module.split(".")[0] in _ROOTS:
            try:
                if _resolve_name(f"{module}:{name}") is target:
                    return f"{module}:{name}"
            except (ImportError, AttributeError, ExportError):
                continue
    raise ExportError(
        f"function {name or target!r} has no name that a stored program may use (only functions of torch and operator)",
        node=node,
    )


def _resolve_name(text: str) -> Any:
    """A function by name; only of torch, operator and math, and never another kind of object."""
    parts = text.split(":")
    if parts[0] == "op" and len(parts) == 4:
        return getattr(getattr(getattr(torch.ops, parts[1]), parts[2]), parts[3])
    module, _, name = text.partition(":")
    if module == "lamina" and name in _own_functions():
        return _own_functions()[name]
    if module.split(".")[0] not in _ROOTS or (
        module == "builtins" and name not in ("getattr", "abs", "min", "max", "pow", "round", "len")
    ):
        raise ExportError(f"a stored program may not use {text!r}")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
        if isinstance(found, types.ModuleType):
            raise ExportError(f"{text!r} reaches into another module")
    if not callable(found) or isinstance(found, type):
        raise ExportError(f"{text!r} is no function")
    # Of torch only what computes on tensors: not its readers of files, compilers and loaders.
    if module.split(".")[0] == "torch" and (not trace_policy.is_graph_function(found) or name == "from_file"):
        raise ExportError(f"{text!r} is no function on tensors")
    return found


def _own_functions() -> dict[str, Any]:
    """Functions of this package that graphs call."""
    from . import _torch, higher_order

    found: dict[str, Any] = {
        n: f for n, f in vars(higher_order).items() if type(f) is types.FunctionType and not n.startswith("_")
    }
    found.update(enter_inference_mode=_torch.enter_inference_mode, exit_inference_mode=_torch.exit_inference_mode)
    return found


def _encode_graph(gm: torch.fx.GraphModule) -> dict[str, Any]:
    """Nodes of a graph, and the bodies of its higher-order calls by name."""
    nodes = list(gm.graph.nodes)
    bodies = {str(n.target): _encode_graph(getattr(gm, str(n.target))) for n in nodes if n.op == "get_attr"}
    return {"nodes": [_encode_node(n) for n in nodes], "bodies": bodies}


def _encode_node(node: torch.fx.Node) -> dict[str, Any]:
    target = _target_name(node.target, node.name) if node.op == "call_function" else str(node.target)
    return {
        "op": node.op, "name": node.name, "target": target, "args": _encode(tuple(node.args), node.name),
        "kwargs": _encode(dict(node.kwargs), node.name), "stack_trace": node.meta.get("stack_trace"),
    }  # fmt: skip


_METHODS = frozenset(n for n in dir(torch.Tensor) if not n.startswith("__"))


def _decode_graph(document: dict[str, Any]) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    nodes: dict[str, torch.fx.Node] = {}
    bodies = {name: _decode_graph(body) for name, body in document.get("bodies", {}).items()}
    for item in document["nodes"]:
        op, target = item["op"], item["target"]
        args, kwargs = _decode(item["args"], nodes), _decode(item["kwargs"], nodes)
        if op == "output":
            graph.output(args[0])
            continue
        if op == "call_function":
            target = _resolve_name(target)
        elif op == "call_method" and target not in _METHODS:
            raise ExportError(f"a stored program may not call the method {target!r}")
        elif op == "get_attr" and target not in bodies:
            raise ExportError(f"a stored program reads {target!r}, which it does not have")
        node = nodes[item["name"]] = graph.create_node(op, target, args, kwargs, name=item["name"])
        if item["stack_trace"]:
            node.meta["stack_trace"] = item["stack_trace"]
    root: Any = torch.nn.Module() if bodies else {}
    for name, body in bodies.items():
        setattr(root, name, body)
    return torch.fx.GraphModule(root, graph, "ExportedGraph")


def load(path: str | os.PathLike[str]) -> ExportedProgram:
    """Read a saved program; needs torch and this package only. Raises ExportError for a file that is none or of
    another format.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"load takes a path, not {type(path).__name__}")
    try:
        with zipfile.ZipFile(path) as archive:
            document = json.loads(archive.read("program.json"))
            state = torch.load(io.BytesIO(archive.read("state.pt")), weights_only=True)
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ExportError(f"{os.fspath(path)!r} is no exported program: {error}") from error
    if document.get("format") != FORMAT:
        raise ExportError(f"{os.fspath(path)!r} has format {document.get('format')}, this version reads {FORMAT}")
    gm = _decode_graph(document)
    inputs = [
        InputSpec(i["name"], i["dtype"], i["device"], tuple(i["shape"]), _decode(i["value"], {}))
        for i in document["inputs"]
    ]
    return ExportedProgram(
        gm,
        inputs,
        [tuple(p) for p in document["placeholders"]],
        state,
        [(what, _decode(key, {})) for what, key in document["outputs"]],
        [
            (ShapeExpr(expr, tuple(names), text), tuple((i, d) for i, d in where))
            for expr, names, text, where in document["relations"]
        ],
        pytree.treespec_loads(document["in_spec"]),
        pytree.treespec_loads(document["out_spec"]),
    )
