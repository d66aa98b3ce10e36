"""Pass table of `lamina.compile` over the operator and module samples that torch ships: values, gradients, dtypes,
shapes, strides and errors, compared with eager.

    python -m benchmarks.ops.op_db run OUT.jsonl [--shard K/N] [--dtypes float32,...] [--per-op N] [--names SUBSTR,...]
                                                 [--layouts plain,transposed,strided] [--backend inductor] [--modules]
                                                 [--errors]
    python -m benchmarks.ops.op_db table OUT.jsonl [...]     writes benchmarks/results/op_db.md

A run is resumable: operators that OUT.jsonl already has are left out. The samples of one operator, all dtypes and
layouts together, are one compiled program, so that an operator costs one compilation; if that program fails, each
sample is compiled alone. An operator that kills its process is recorded as a crash by the parent.
"""

from __future__ import annotations

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

ROOT = pathlib.Path(__file__).parents[2]
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")
LAYOUTS = ("plain", "transposed", "strided")
TOLERANCE = {
    torch.float64: (1e-7, 1e-7), torch.float32: (2e-5, 2e-5), torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (3.2e-2, 1e-2), torch.complex64: (2e-5, 2e-5), torch.complex128: (1e-7, 1e-7),
    torch.complex32: (4e-3, 2e-3),
}  # fmt: skip
# Values that differ from run to run or mean nothing; the metadata must still agree.
UNSPECIFIED = (
    "empty", "new_empty", "dropout", "rand", "normal", "bernoulli", "multinomial", "exponential", "cauchy",
    "geometric", "log_normal", "uniform", "rrelu", "fractional_max_pool", "svd_lowrank", "pca_lowrank", "resize_",
)  # fmt: skip
# The sign or the phase of these results is free.
PHASE = ("svd", "eig", "qr", "householder", "ormqr", "geqrf", "lobpcg", "ldl", "lstsq")


class Case:
    """One call: `apply(*tensors)` on a fresh copy of the tensors, in their layout."""

    def __init__(self, name: str, call: Callable[..., Any], sample: Any, label: str) -> None:
        self.name, self.call, self.sample, self.label = name, call, sample, label

    def arguments(self) -> tuple[Any, list[torch.Tensor]]:
        """A copy of the arguments and, of these, the tensors that require gradients."""
        copied = copy_tree(self.sample)
        leaves = [t for t in pytree.tree_leaves(copied) if isinstance(t, torch.Tensor) and t.requires_grad]
        return copied, leaves


def copy_tree(tree: Any) -> Any:
    """Copies every tensor with its strides and its requires_grad; other leaves are deep-copied where possible."""
    return pytree.tree_map(lambda t: copy_tensor(t) if isinstance(t, torch.Tensor) else t, tree)


def copy_tensor(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    if t.layout is not torch.strided or t.is_quantized or type(t) is not torch.Tensor:
        return t
    out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) if not overlaps(t) else t.detach().clone()
    with torch.no_grad():
        out.copy_(t.detach())
    return out.requires_grad_(t.requires_grad)


def overlaps(t: torch.Tensor) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride(), strict=True))


def relay(t: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values in other strides: last two dimensions swapped in memory, or every second element."""
    if layout == "plain" or t.layout is not torch.strided or t.dim() < (2 if layout == "transposed" else 1):
        return t
    with torch.no_grad():
        d = t.detach()
        if layout == "transposed":
            out = torch.empty_like(d.mT, memory_format=torch.contiguous_format).mT
        else:
            out = torch.empty((*d.shape[:-1], 2 * d.shape[-1]), dtype=d.dtype)[..., ::2]
        out.copy_(d)
    return out.requires_grad_(t.requires_grad)


def in_layout(sample: Any, layout: str) -> Any:
    return pytree.tree_map(lambda t: relay(t, layout) if type(t) is torch.Tensor else t, sample)


def spread(items: list[Any], count: int) -> list[Any]:
    """`count` of the items, evenly over the list, the first and the last among them."""
    if len(items) <= count:
        return items
    return [items[round(k * (len(items) - 1) / max(1, count - 1))] for k in range(count)]


def cases_of(info: Any, dtypes: list[torch.dtype], layouts: list[str], per_op: int) -> Iterator[Case]:
    """The calls of one OpInfo."""
    supported = info.supported_dtypes("cpu")
    for number, dtype in enumerate(dtypes):
        if dtype not in supported:
            continue
        backward = dtype in info.supported_backward_dtypes("cpu") and (dtype.is_floating_point or dtype.is_complex)
        torch.manual_seed(0)
        try:
            samples = list(info.sample_inputs("cpu", dtype, requires_grad=backward))
        except Exception:
            continue
        for k, s in enumerate(spread(samples, per_op)):
            layout = layouts[(k + number) % len(layouts)]
            if any(t.layout is not torch.strided for t in tensors_of((s.input, s.args, s.kwargs))):
                continue
            sample = in_layout((s.input, tuple(s.args), dict(s.kwargs)), layout)
            yield Case(info.name, info.op, sample, f"{str(dtype)[6:]} {layout} {describe(sample)}")


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def describe(tree: Any) -> str:
    """Short text of arguments."""
    def one(t: Any) -> Any:
        return f"{str(t.dtype)[6:]}{list(t.shape)}" if isinstance(t, torch.Tensor) else t

    return repr(pytree.tree_map(one, tree))[:200]


def results_of(call: Callable[..., Any], arguments: Any) -> tuple[Any, ...]:
    """The tensors and numbers among the results of one call."""
    x, args, kwargs = arguments
    out = call(x, *args, **kwargs)
    return tuple(o for o in pytree.tree_leaves(out) if isinstance(o, (torch.Tensor, int, float, bool, complex)))


def gradients(outputs: tuple[Any, ...], leaves: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Gradients of the outputs' product with fixed weights, for each leaf."""
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not roots or not leaves:
        return []
    weights = []
    for o in roots:
        ramp = torch.arange(o.numel(), dtype=torch.float64).mul_(0.37).sin_().add_(0.3).reshape(o.shape)
        weights.append(ramp.to(o.dtype))
    return list(torch.autograd.grad(roots, leaves, weights, allow_unused=True))


def compare(got: Any, want: Any, name: str, what: str, scale: float = 1.0) -> str | None:
    """What differs, or None."""
    if isinstance(want, torch.Tensor) != isinstance(got, torch.Tensor):
        return f"{what}: {type(got).__name__}, eager {type(want).__name__}"
    if not isinstance(want, torch.Tensor):
        free = any(u in name for u in UNSPECIFIED)
        return None if got == want or got != got or free else f"{what}: {got}, eager {want}"
    if got.dtype is not want.dtype:
        return f"{what}: dtype {got.dtype}, eager {want.dtype}"
    if got.shape != want.shape:
        return f"{what}: shape {tuple(got.shape)}, eager {tuple(want.shape)}"
    if want.layout is not torch.strided:
        return None
    if got.stride() != want.stride():
        return f"{what}: stride {got.stride()}, eager {want.stride()} of {tuple(want.shape)}"
    if any(u in name for u in UNSPECIFIED) or any(u in name for u in PHASE):
        return None
    a, b = got.detach().resolve_conj().resolve_neg(), want.detach().resolve_conj().resolve_neg()
    if b.dtype is torch.complex32:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if b.dtype not in TOLERANCE:
        return None if torch.equal(a, b) else f"{what}: values {show(a)}, eager {show(b)}"
    rtol, atol = TOLERANCE[b.dtype]
    if torch.allclose(a, b, rtol * scale, atol * scale, equal_nan=True):
        return None
    return f"{what}: values {show(a)}, eager {show(b)}"


def show(t: torch.Tensor) -> str:
    return str([f"{v:.6g}" if isinstance(v, float) else v for v in t.flatten()[:5].tolist()])


class Expected:
    """Eager's answer to a case: results and gradients; `error` if it raises."""

    def __init__(self, case: Case) -> None:
        self.case, self.error = case, None
        self.outputs: tuple[Any, ...] = ()
        self.grads: list[torch.Tensor | None] = []
        self.leaves: list[torch.Tensor] = []
        try:
            arguments, self.leaves = case.arguments()
            torch.manual_seed(1)
            self.outputs = results_of(case.call, arguments)
            self.grads = gradients(self.outputs, self.leaves)
        except Exception as e:
            self.error = e


def judge(expected: Expected, outputs: tuple[Any, ...], leaves: list[torch.Tensor]) -> str | None:
    """What is wrong with a compiled call's results and gradients, or None."""
    name, want = expected.case.name, expected.outputs
    if len(outputs) != len(want):
        return f"{len(outputs)} results, eager {len(want)}"
    for k, (g, w) in enumerate(zip(outputs, want, strict=True)):
        problem = compare(g, w, name, f"result {k}")
        if problem:
            return problem
        if isinstance(w, torch.Tensor) and w.requires_grad != g.requires_grad:
            return f"result {k}: requires_grad {g.requires_grad}, eager {w.requires_grad}"
    try:
        grads = gradients(outputs, leaves)
    except Exception as e:
        return f"backward: {type(e).__name__}: {str(e)[:300]}"
    for k, (g, w) in enumerate(zip(grads, expected.grads, strict=True)):
        if (g is None) != (w is None):
            return f"gradient {k}: {'None' if g is None else 'a tensor'}, eager {'None' if w is None else 'a tensor'}"
        if g is not None:
            problem = compare(g, w, name, f"gradient {k}", 5.0)
            if problem and "stride" not in problem:
                return problem
    return None


def check(cases: list[Case], backend: str) -> list[tuple[str, str | None]]:
    """(label, problem or None) of each case that eager runs; one program first, each alone if that fails."""
    import lamina

    expected = [e for e in map(Expected, cases) if e.error is None]
    found: list[tuple[str, str | None]] = []
    todo = [expected] if len(expected) > 1 else []
    alone = [] if todo else expected
    for group in todo:
        calls = [e.case.call for e in group]

        def program(many: list[Any], calls: list[Any] = calls) -> list[tuple[Any, ...]]:
            return [results_of(call, arguments) for call, arguments in zip(calls, many)]

        made = [e.case.arguments() for e in group]
        try:
            lamina.reset()
            torch.manual_seed(1)
            outs = lamina.compile(program, backend=backend)([a for a, _ in made])
        except Exception:
            alone = group
            continue
        for e, out, (_, leaves) in zip(group, outs, made, strict=True):
            problem = judge(e, out, leaves)
            (alone if problem else found).append(e if problem else (e.case.label, None))
    for e in alone:
        found.append((e.case.label, check_alone(e, backend)))
    return found


def check_alone(e: Expected, backend: str) -> str | None:
    """The problem of one case compiled by itself, or None."""
    import lamina

    call = e.case.call

    def program(arguments: Any) -> tuple[Any, ...]:
        return results_of(call, arguments)

    arguments, leaves = e.case.arguments()
    try:
        lamina.reset()
        torch.manual_seed(1)
        out = lamina.compile(program, backend=backend)(arguments)
    except Exception as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        return f"raised {type(error).__name__}: {str(error)[:300]} (cause {type(cause).__name__}: {str(cause)[:200]})"
    return judge(e, out, leaves)


def check_errors(info: Any, backend: str) -> list[tuple[str, str | None]]:
    """Inputs that eager rejects: compiled must raise the same type of error."""
    import lamina

    if info.error_inputs_func is None:
        return []
    found: list[tuple[str, str | None]] = []
    for bad in info.error_inputs("cpu"):
        s = bad.sample_input
        sample = (s.input, tuple(s.args), dict(s.kwargs))
        case = Case(info.name, info.op, sample, f"error {describe(sample)}")
        want = Expected(case).error
        if want is None:
            continue

        def program(arguments: Any, call: Any = info.op) -> tuple[Any, ...]:
            return results_of(call, arguments)

        lamina.reset()
        try:
            lamina.compile(program, backend=backend)(case.arguments()[0])
        except Exception as got:
            same = isinstance(got, type(want)) or isinstance(want, type(got))
            problem = None if same else f"raised {type(got).__name__}: {str(got)[:200]}, eager {type(want).__name__}"
        else:
            problem = f"raised nothing, eager {type(want).__name__}: {str(want)[:120]}"
        found.append((case.label, problem))
    return found


def module_cases(info: Any, dtypes: list[torch.dtype], per_op: int) -> Iterator[Case]:
    """The calls of one ModuleInfo; the module itself is an argument, its parameters are leaves."""
    for dtype in dtypes:
        if dtype not in info.dtypes or not dtype.is_floating_point:
            continue
        for training in (True, False):
            torch.manual_seed(0)
            try:
                inputs = list(info.module_inputs_func(info, "cpu", dtype, True, training))
            except Exception:
                continue
            for m in spread(inputs, per_op):
                torch.manual_seed(0)
                made = info.module_cls(*m.constructor_input.args, **m.constructor_input.kwargs)
                module = made.to(dtype).train(training)
                if m.forward_input is None:
                    continue
                args, kwargs = tuple(m.forward_input.args), dict(m.forward_input.kwargs)
                label = f"{str(dtype)[6:]} {'train' if training else 'eval'} {describe((args, kwargs))}"
                yield ModuleCase(info.name, module, (None, args, kwargs), label)


class ModuleCase(Case):
    """A call of a module; every run gets a copy of the module."""

    def __init__(self, name: str, module: Any, sample: Any, label: str) -> None:
        super().__init__(name, run_module, sample, label)
        self.module = module

    def arguments(self) -> tuple[Any, list[torch.Tensor]]:
        module = copy.deepcopy(self.module)
        (_, args, kwargs), leaves = super().arguments()
        return (module, args, kwargs), leaves + [p for p in module.parameters() if p.requires_grad]


def run_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def jobs(options: argparse.Namespace) -> list[tuple[str, Callable[[], list[tuple[str, str | None]]]]]:
    """(key, function that checks it) of every operator or module of this shard."""
    dtypes = [getattr(torch, d) for d in options.dtypes.split(",")]
    layouts = options.layouts.split(",")
    out: list[tuple[str, Callable[[], list[tuple[str, str | None]]]]] = []
    if options.modules:
        from torch.testing._internal.common_modules import module_db

        for info in module_db:
            out.append((
                f"module {info.name}",
                lambda info=info: check(list(module_cases(info, dtypes, options.per_op)), options.backend),
            ))
    else:
        from torch.testing._internal.common_methods_invocations import op_db

        for info in op_db:
            key = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
            if options.errors:
                out.append((f"errors {key}", lambda info=info: check_errors(info, options.backend)))
            else:
                out.append((
                    key,
                    lambda info=info: check(list(cases_of(info, dtypes, layouts, options.per_op)), options.backend),
                ))
    if options.names:
        wanted = options.names.split(",")
        out = [j for j in out if any(w in j[0] for w in wanted)]
    k, n = map(int, options.shard.split("/"))
    return out[k::n]


def work(options: argparse.Namespace) -> None:
    """Checks the jobs that OUT lacks, one line each; a line is announced before its job starts."""
    warnings.simplefilter("ignore")
    path = pathlib.Path(options.out)
    done = {json.loads(line)["key"] for line in path.read_text().splitlines()} if path.exists() else set()
    for key, run in jobs(options):
        if key in done:
            continue
        pathlib.Path(f"{path}.current").write_text(key)
        start = time.time()
        try:
            found = run()
        except Exception as e:
            found = [("all", f"harness {type(e).__name__}: {str(e)[:200]}")]
        row = {
            "key": key, "passed": sum(p is None for _, p in found), "seconds": round(time.time() - start, 2),
            "problems": [[label, p] for label, p in found if p is not None],
        }  # fmt: skip
        with path.open("a") as f:
            f.write(json.dumps(row) + "\n")
    pathlib.Path(f"{path}.current").write_text("")


def supervise(options: argparse.Namespace, argv: list[str]) -> None:
    """Runs `work` in a child; a child that dies or hangs is recorded and a new one goes on behind it."""
    path = pathlib.Path(options.out)
    current = pathlib.Path(f"{path}.current")
    while True:
        child = subprocess.Popen([sys.executable, "-m", "benchmarks.ops.op_db", "work", *argv], cwd=ROOT)
        last, since = "", time.time()
        while child.poll() is None:
            time.sleep(0.5)
            now = current.read_text() if current.exists() else ""
            if now != last:
                last, since = now, time.time()
            elif time.time() - since > options.limit:
                child.kill()
                child.wait()
        key = current.read_text() if current.exists() else ""
        if not key:
            return
        row = {"key": key, "passed": 0, "seconds": 0, "problems": [["all", f"process ended: {child.returncode}"]]}
        with path.open("a") as f:
            f.write(json.dumps(row) + "\n")


def table(paths: list[str]) -> None:
    """Writes the pass table from the lines of all runs."""
    rows: dict[str, dict[str, Any]] = {}
    for path in paths:
        for line in pathlib.Path(path).read_text().splitlines():
            row = json.loads(line)
            rows[row["key"]] = row
    failing = {k: r for k, r in sorted(rows.items()) if r["problems"]}
    kinds = Counter(
        "module" if k.startswith("module ") else "errors" if k.startswith("errors ") else "operator" for k in rows
    )
    passed, wrong = sum(r["passed"] for r in rows.values()), sum(len(r["problems"]) for r in rows.values())
    lines = [
        "# Operator and module samples through lamina.compile", "",
        f"torch {torch.__version__}, CPU. "
        + ", ".join(f"{n} {k}{'' if k == 'errors' else 's'}" for k, n in kinds.items())
        + f"; samples passed {passed}, wrong {wrong}; "
        + f"rows without a problem {len(rows) - len(failing)} of {len(rows)}.",
        "", "Made by `python -m benchmarks.ops.op_db`. Rows with problems:", "",
        "| row | passed | wrong | first problem |", "|---|---|---|---|",
    ]  # fmt: skip
    for key, row in failing.items():
        label, problem = row["problems"][0]
        text = f"{label}: {problem}".replace("|", "/").replace("\n", " ")[:260]
        lines.append(f"| {key} | {row['passed']} | {len(row['problems'])} | {text} |")
    out = ROOT / "benchmarks" / "results" / "op_db.md"
    out.write_text("\n".join(lines) + "\n")
    print(lines[2])


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["run", "work", "table"])
    p.add_argument("out", nargs="+")
    p.add_argument("--shard", default="0/1")
    p.add_argument("--dtypes", default=",".join(DTYPES))
    p.add_argument("--layouts", default=",".join(LAYOUTS))
    p.add_argument("--per-op", type=int, default=3)
    p.add_argument("--names", default="")
    p.add_argument("--backend", default="inductor")
    p.add_argument("--modules", action="store_true")
    p.add_argument("--errors", action="store_true")
    p.add_argument("--limit", type=float, default=300.0, help="seconds one operator may take")
    return p


def main() -> None:
    argv = sys.argv[1:]
    options = parser().parse_args(argv)
    if options.command == "table":
        table(options.out)
        return
    options.out = options.out[0]
    if options.command == "work":
        work(options)
    else:
        supervise(options, argv[1:])


if __name__ == "__main__":
    main()
