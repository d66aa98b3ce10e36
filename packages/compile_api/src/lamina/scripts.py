"""Graphs as standalone, runnable Python: what dumps, failure reports and the minifier write.

A script holds the code of the graph, inputs with the metadata of the real ones (shape, stride, dtype, requires_grad)
and no data of the user, and what to do with it: run it, compile it, or compare the two.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import re
import textwrap
import zlib
from collections.abc import Sequence
from typing import Any

import torch

_HEADER = '''"""{title}"""
import torch
{imports}

def tensor(shape, stride, dtype, requires_grad=False, device="cpu"):
    """A tensor with this metadata; contents are made up: small integers, or normal floats with a fixed seed."""
    size = 1 + sum((n - 1) * abs(s) for n, s in zip(shape, stride)) if all(shape) else 0
    generator = torch.Generator().manual_seed(size % 1009)
    if dtype.is_floating_point or dtype.is_complex:
        flat = torch.randn(size, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    else:
        flat = torch.randint(0, 2, (size,), generator=generator)
    return flat.to(device=device, dtype=dtype).as_strided(shape, stride).requires_grad_(requires_grad)

'''


class CannotWriteScript(ValueError):
    """The graph names an object that no script can import; the message says which."""


def _hint(n: Any) -> Any:
    """The number that a symbolic one stands for in this run, without a guard on it; 2 where only the run knows."""
    if not isinstance(n, torch.SymInt | torch.SymFloat | torch.SymBool):
        return n
    try:
        hint = n.node.hint
    except Exception:
        hint = None
    return 2 if hint is None else hint


_STORED = '''
def stored(data, shape, stride, dtype, requires_grad=False, device="cpu"):
    """A tensor of these values."""
    import base64, zlib
    flat = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(data))), dtype=torch.uint8).view(dtype)
    return flat.to(device=device).as_strided(shape, stride).requires_grad_(requires_grad)

'''


def _stored_expression(value: torch.Tensor) -> str:
    """Return the expression that makes a tensor with its values."""
    from .accuracy import copy_in_layout

    kept = copy_in_layout(value).cpu()
    span = 1 + sum((n - 1) * s for n, s in zip(kept.shape, kept.stride(), strict=True))
    flat = kept.as_strided((span,), (1,)).contiguous()
    raw = base64.b64encode(zlib.compress(flat.view(torch.uint8).numpy().tobytes())).decode()
    return input_expression(value).replace("tensor(", f"stored({raw!r}, ", 1)


def input_expression(value: Any, data: bool = False) -> str:
    """Return the Python expression that makes an input like `value`, without its data unless that is asked for."""
    if data and isinstance(value, torch.Tensor) and value.numel() and value.layout == torch.strided:
        return _stored_expression(value)
    if isinstance(value, torch.Tensor):
        shape = tuple(map(_hint, value.shape))
        stride = tuple(map(_hint, value.stride()))
        text = f"tensor({shape}, {stride}, {value.dtype}"
        if value.requires_grad:
            text += ", requires_grad=True"
        if value.device.type != "cpu":
            text += f", device={value.device.type!r}"
        return text + ")"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return repr(_hint(value))
    return f'float("{value}")' if isinstance(value, float) else repr(value)  # also nan and inf


def graph_source(gm: torch.fx.GraphModule, name: str = "graph") -> tuple[str, str]:
    """Return (import lines, source of a function `name`) for a graph.

    Sub-GraphModules become nested functions. CannotWriteScript if a node's target cannot be imported by name.
    """
    code = gm.graph.python_code("self")
    body = code.src.strip()
    regions = {k: v.graph_module for k, v in code.globals.items() if hasattr(v, "graph_module")}
    used = set(re.findall(r"\w+", body))  # torch.fx names more than it uses
    imports = [_import_line(k, v) for k, v in code.globals.items()
               if k != "torch" and k not in regions and k.partition(".")[0] in used]
    body = body.replace("def forward(self, ", f"def {name}(").replace("def forward(self)", f"def {name}()")
    prologue = []
    for key, sub_graph in regions.items():  # a stretch that occurs several times: a function of its own
        sub_imports, sub = graph_source(sub_graph, key)
        imports += sub_imports.splitlines()
        prologue.append(sub)
    for node in gm.graph.find_nodes(op="get_attr"):
        path = str(node.target)
        value = gm
        for part in path.split("."):
            value = getattr(value, part)
        flat = path.replace(".", "_")
        body = body.replace(f"self.{path}", f"{name}_{flat}")
        if isinstance(value, torch.fx.GraphModule):
            sub_imports, sub = graph_source(value, f"{name}_{flat}")
            imports += sub_imports.splitlines()
            prologue.append(sub)
        elif isinstance(value, torch.Tensor):
            prologue.append(f"{name}_{flat} = {input_expression(value)}")
        else:
            raise CannotWriteScript(f"attribute {path} is a {type(value).__name__}")
    if "self." in body:
        raise CannotWriteScript("the graph calls a submodule")
    text = "\n\n".join([*prologue, body]) + "\n"
    return "\n".join(dict.fromkeys(i for i in imports if i)), text


def _import_line(key: str, value: Any) -> str:
    if value is None or isinstance(value, int | str) and not isinstance(value, bool):
        return f"{key} = {value!r}"
    if isinstance(value, float):
        return f'{key} = float("{value}")'
    if isinstance(value, type(importlib)):
        return f"import {value.__name__} as {key}" if value.__name__ != key else f"import {key}"
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return f"{key} = {value}"
    module, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if hasattr(value, "spec") and hasattr(value, "name"):
        return f"from lamina_primtorch import PRIMS; {key} = PRIMS[{value.name!r}]"
    if value is type(None):
        return f"{key} = type(None)"
    if module == "builtins" and hasattr(builtins, str(attribute)):
        return "" if key == attribute else f"{key} = {attribute}"
    if module and attribute and "<" not in attribute:
        try:
            found = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            found = None
        if found is value:
            first, _, rest = attribute.partition(".")
            line = f"from {module} import {first}"
            return line if key == attribute else f"{line}; {key} = {attribute}"
    raise CannotWriteScript(f"{key} = {value!r} cannot be imported by name")


def script_of(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    rung: str = "inductor",
    title: str = "A captured graph, compiled again by lamina.",
    purpose: str = "compile",
    data: bool = False,
) -> str:
    """Return a standalone script for a graph.

    `purpose` "run" only runs the graph; "compile" also compiles it with backend `rung` and runs the result, so that a
    crash comes back; "compare" raises CheckError where `lamina.check` finds that the backend differs from eager.
    `data`: the script holds the values of the inputs, too.
    """
    imports, source = graph_source(gm)
    inputs = ",\n        ".join(input_expression(v, data) for v in example_inputs)
    title = title.replace("\\", "/").replace('"', "'")
    text = _HEADER.format(title=title, imports=imports) + (_STORED if data else "") + "\n" + source
    listed = f"[\n        {inputs},\n    ]" if inputs else "[]"
    text += f"\n\ndef inputs():\n    return {listed}\n"
    text += "\n\n" + textwrap.dedent(_MAIN[purpose]).format(rung=rung)
    return text


_RESULTS = '''
def results(fn):
    """Outputs, and gradients of the inputs, of one call."""
    torch.manual_seed(0)
    args = inputs()
    outputs = fn(*args)
    flat = [o for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs]) if isinstance(o, torch.Tensor)]
    loss = [(torch.view_as_real(o) if o.is_complex() else o).sum() for o in flat if o.requires_grad]
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf]
    if loss and leaves:
        flat = flat + [g for g in torch.autograd.grad(sum(loss), leaves, allow_unused=True) if g is not None]
    return [o.detach() for o in flat]
'''

_MAIN = {
    "run": '''
if __name__ == "__main__":
    print(graph(*inputs()))
''',
    "compile": _RESULTS + '''

if __name__ == "__main__":
    import lamina

    with lamina.config.patch(strict=True, failure_script=False):
        for got in results(lamina.compile(graph, backend="{rung}")):
            print(tuple(got.shape), got.dtype)
''',
    "compare": '''

if __name__ == "__main__":
    import lamina

    report = lamina.check(graph, backends=["{rung}"])(*inputs())
    print(report)
    report.raise_if_different()
''',
}
