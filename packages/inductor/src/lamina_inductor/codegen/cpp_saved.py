"""Compiled graphs of the C++ target in files: for a process or machine that is to run a graph and not to compile it.

A file is a zip archive: ``graph.json`` (what the file was made for, and what the native function is told when it is
made), the source and the shared object of each unit, and the bytes of each constant. Nothing in it is pickled. It holds
machine code, so that to load a file is to run what its author wrote.

A file fits machines of the same platform and vector width with the same torch and the same version of this package:
`read_graph` refuses it elsewhere, before any code of it is loaded. Inputs of a loaded graph are always checked, since
no guard stands before it.
"""

from __future__ import annotations

import ctypes
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lamina_primtorch import PRIMS, Prim

from .. import build_cache
from ..errors import TargetError
from ..index import Expr, add, const, floordiv, maximum, minimum, mod, mul, symbol
from ..ir.layout import Layout
from ..ir.program import BufferDecl, BufferRef, ExternCall, GraphProgram

_NOTE = "graph.json"


@dataclass
class Parts:
    """What the native function of a graph is made of, beside loaded code. `functions`: (unit, exported name) of each
    kernel that is not part of the wrapper's unit; `calls`: extern calls by number, None for one that is written
    inline."""

    units: list[build_cache.Unit]
    functions: list[tuple[int, str]]
    input_kinds: str
    outputs: list[tuple[str, Any]]
    releases_gil: bool
    constants: list[torch.Tensor]
    calls: list[ExternCall | None]
    inputs: GraphProgram
    libraries: Sequence[Path] = ()
    notes: dict[str, Any] = field(default_factory=dict)


def inputs_of(program: GraphProgram) -> GraphProgram:
    """The program's inputs without its steps: all that a check of inputs needs."""
    buffers = {name: d for name, d in program.buffers.items() if d.kind == "input"}
    return GraphProgram(program.name, program.input_count, buffers, [], [], list(program.sizes))


def write_graph(parts: Parts, path: Path | str) -> None:
    """Writes a file that `read_graph` reads. Raises TargetError naming what cannot be written; an existing file is
    replaced only by a whole one."""
    constants = [_describe_constant(k, t) for k, t in enumerate(parts.constants)]
    note = {
        **build_cache.made_here(),
        "torch": torch.__version__,
        "units": [{"language": u.language, "flags": list(u.extra), "salt": u.salt} for u in parts.units],
        "functions": parts.functions,
        "input_kinds": parts.input_kinds,
        "outputs": [[kind, _encode(value, "a result")] for kind, value in parts.outputs],
        "releases_gil": parts.releases_gil,
        "constants": constants,
        "calls": [None if c is None else _encode_call(c) for c in parts.calls],
        "inputs": _encode_inputs(parts.inputs),
        "notes": parts.notes,
    }
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_NOTE, json.dumps(note))
        for k, (unit, library) in enumerate(zip(parts.units, parts.libraries, strict=True)):
            archive.writestr(f"unit{k}.cpp", unit.source)
            archive.writestr(f"unit{k}.so", library.read_bytes())
        for k, t in enumerate(parts.constants):
            archive.writestr(f"constant{k}", _bytes_of(t), zipfile.ZIP_STORED)
    path = Path(path)
    try:
        build_cache.write_whole(path, whole.getvalue(), mode=0o600)
    except OSError as e:
        raise TargetError(f"the compiled graph cannot be written to {path}: {e}") from e


def read_graph(path: Path | str, cache: build_cache.BuildCache) -> Parts:
    """What `write_graph` wrote; its shared objects are kept in `cache`. Raises TargetError where the file is none, is
    damaged, or was made for another machine, torch or version."""
    try:
        with zipfile.ZipFile(path) as archive:
            note = json.loads(archive.read(_NOTE))
            build_cache.check_made_here(path, note)
            if note["torch"] != torch.__version__:
                raise TargetError(
                    f"{path} was made for torch {note['torch']}, this is {torch.__version__}",
                    hint="compile on this machine instead",
                )
            units = [
                build_cache.Unit(
                    archive.read(f"unit{k}.cpp").decode(), u["language"], tuple(u["flags"]), u["salt"]
                )
                for k, u in enumerate(note["units"])
            ]
            code = [archive.read(f"unit{k}.so") for k in range(len(units))]
            constants = [_constant(c, archive.read(f"constant{k}")) for k, c in enumerate(note["constants"])]
        libraries = [cache.find(u.key) or cache.store(u.key, data) for u, data in zip(units, code, strict=True)]
        return Parts(
            units,
            [(int(k), str(name)) for k, name in note["functions"]],
            str(note["input_kinds"]),
            [(str(kind), _decode(value)) for kind, value in note["outputs"]],
            bool(note["releases_gil"]),
            constants,
            [None if c is None else _decode_call(c) for c in note["calls"]],
            _decode_inputs(note["inputs"]),
            libraries,
            note["notes"],
        )
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError) as e:
        raise TargetError(
            f"{path} is not a saved graph: {type(e).__name__}: {e}", hint="make one with CompiledGraph.save"
        ) from e


# ---- constants ----


def _describe_constant(k: int, t: torch.Tensor) -> dict[str, Any]:
    if t.layout != torch.strided or t.device.type != "cpu" or type(t) not in (torch.Tensor, torch.nn.Parameter):
        raise TargetError(
            f"constant {k} of the graph cannot be saved: {type(t).__name__} with {t.layout} on {t.device}",
            hint="compile the graph without freezing",
        )
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "stride": list(t.stride())}


def _bytes_of(t: torch.Tensor) -> bytes:
    whole = t.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()) if whole.numel() else b""


def _constant(note: dict[str, Any], data: bytes) -> torch.Tensor:
    dtype, shape = getattr(torch, note["dtype"]), tuple(note["shape"])
    out = torch.empty_strided(shape, tuple(note["stride"]), dtype=dtype)
    if len(data) != out.numel() * out.element_size():
        raise ValueError("a constant has another size than its description")
    if data:
        out.copy_(torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape))
    return out


# ---- inputs and sizes ----

_BUILD = {"floordiv": floordiv, "mod": mod, "min": minimum, "max": maximum}


def _encode_size(e: Expr | int) -> Any:
    if isinstance(e, int):
        return e
    if e.op == "const":
        return int(e)
    if e.op == "sym":
        return e.args[0]
    return [e.op, *map(_encode_size, e.args)]


def _decode_size(a: Any) -> Expr:
    if isinstance(a, int):
        return const(a)
    if isinstance(a, str):
        return symbol(a)
    op, *args = a
    parts = [_decode_size(x) for x in args]
    out = parts[0]
    for x in parts[1:]:
        out = add(out, x) if op == "add" else mul(out, x) if op == "mul" else _BUILD[op](out, x)
    return out


def _encode_inputs(inputs: GraphProgram) -> dict[str, Any]:
    tensors = []
    for d in inputs.buffers.values():
        shape, stride = ([*map(_encode_size, e)] for e in (d.layout.shape, d.layout.stride))
        tensors.append([d.index, _encode(d.layout.dtype, "an input"), shape, stride])
    return {"name": inputs.name, "count": inputs.input_count, "sizes": inputs.sizes, "tensors": tensors}


def _decode_inputs(note: dict[str, Any]) -> GraphProgram:
    buffers = {}
    for index, dtype, shape, stride in note["tensors"]:
        layout = Layout(
            _decode(dtype), torch.device("cpu"), tuple(map(_decode_size, shape)), tuple(map(_decode_size, stride))
        )
        buffers[f"in{index}"] = BufferDecl(f"in{index}", layout, "input", index)
    sizes = [(s, k, what, dim) for s, k, what, dim in note["sizes"]]
    return GraphProgram(note["name"], note["count"], buffers, [], [], sizes)


# ---- extern calls ----

_TORCH_VALUES = (torch.dtype, torch.layout, torch.memory_format)


def _encode_call(call: ExternCall) -> dict[str, Any]:
    where = str(call.target)
    if isinstance(call.target, torch._ops.OpOverload):
        target = ["aten", call.target._schema.name, call.target._overloadname]
    elif isinstance(call.target, Prim) and PRIMS.get(call.target.name) is call.target:
        target = ["prim", call.target.name, ""]
    else:
        raise TargetError(
            f"the call of {where} cannot be saved: it is neither an operator nor a prim", node=where,
            hint="register it as an operator with torch.library",
        )
    return {
        "target": target,
        "args": [_encode(a, where) for a in call.args],
        "kwargs": {k: _encode(v, where) for k, v in call.kwargs.items()},
        "outputs": list(call.outputs),
        "out": call.out,
    }


def _decode_call(note: dict[str, Any]) -> ExternCall:
    kind, name, overload = note["target"]
    target: Any = PRIMS.get(name) if kind == "prim" else _operator(name, overload)
    if target is None:
        raise TargetError(
            f"the saved graph calls {name}, which this process does not have", node=name,
            hint="import the package that registers the operator first",
        )
    args = tuple(_decode(a) for a in note["args"])
    kwargs = {k: _decode(v) for k, v in note["kwargs"].items()}
    return ExternCall(target, args, kwargs, tuple(note["outputs"]), out=note["out"])


def _operator(name: str, overload: str) -> Any:
    namespace, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short, None)
    return getattr(packet, overload, None)


def _encode(a: Any, where: str) -> Any:
    """Plain JSON for numbers, text and None; a mapping with one entry for everything else."""
    if a is None or isinstance(a, (bool, int, float, str)):
        return a
    if isinstance(a, BufferRef):
        return {"buffer": a.name}
    if isinstance(a, Expr):
        return int(a) if a.is_const else {"size": _encode_size(a)}
    if isinstance(a, (list, tuple)):
        return {"tuple" if isinstance(a, tuple) else "list": [_encode(x, where) for x in a]}
    if isinstance(a, _TORCH_VALUES):
        return {"torch": str(a).removeprefix("torch.")}
    if isinstance(a, torch.device):
        return {"device": str(a)}
    if isinstance(a, complex):
        return {"complex": [a.real, a.imag]}
    raise TargetError(
        f"an argument of {where} is {type(a).__name__}, which cannot be saved", node=where
    )


def _decode(a: Any) -> Any:
    if not isinstance(a, dict):
        return a
    ((kind, value),) = a.items()
    if kind == "buffer":
        return BufferRef(value)
    if kind == "size":
        return _decode_size(value)
    if kind in ("list", "tuple"):
        return [list, tuple][kind == "tuple"](_decode(x) for x in value)
    if kind == "torch":
        found = getattr(torch, value)
        if not isinstance(found, _TORCH_VALUES):
            raise ValueError(f"torch.{value} is no dtype, layout or memory format")
        return found
    return torch.device(value) if kind == "device" else complex(*value)


__all__ = ["Parts", "inputs_of", "read_graph", "write_graph"]
