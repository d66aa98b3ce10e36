"""Run one model once, in a process of its own, and print one JSON object as the last line.

    python -m benchmarks.models.worker timm/resnet18 --impl lamina --mode train --dtype float32 --size small

Compared with eager on the same weights and inputs, and both with float64: outputs, loss, gradients, buffers. Timed
side by side with eager in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import resource
import statistics
import sys
import time
import traceback
import warnings

import torch
from torch.utils._pytree import tree_flatten, tree_map

IMPLEMENTATIONS = ("eager", "torch", "lamina")
# relative errors below this are rounding noise of the format, not a difference
FLOOR = {"float32": 1e-5, "amp": 2e-2}


def compile_with(impl: str, model: torch.nn.Module, backend: str | None, dynamic: bool | None):
    if impl == "eager":
        return model
    options = {"dynamic": dynamic}
    if backend:
        options["backend"] = backend
    if impl == "torch":
        return torch.compile(model, **options)
    import lamina

    return lamina.compile(model, **options)


def capture_counts(impl: str) -> dict:
    """Graphs captured and graph breaks (reason -> count) so far in this process."""
    if impl == "torch":
        from torch._dynamo.utils import counters

        breaks = {str(k)[:200]: v for k, v in counters["graph_break"].items()}
        return {
            "graphs": counters["stats"].get("unique_graphs", 0),
            "breaks": sum(breaks.values()),
            "break_reasons": breaks,
        }
    if impl == "lamina":
        import lamina_dynamo

        c = lamina_dynamo.counters()
        c = c if isinstance(c, dict) else vars(c)
        breaks = {str(k)[:200]: v for k, v in dict(c.get("breaks") or c.get("graph_breaks") or {}).items()}
        return {
            "graphs": c.get("graphs", 0),
            "breaks": sum(breaks.values()),
            "break_reasons": breaks,
            "fallbacks": c.get("fallbacks", 0),
            "skips": dict(c.get("skips") or {}),
            "recompiles": {str(k)[:200]: v for k, v in dict(c.get("recompiles") or {}).items()},
        }
    return {"graphs": 0, "breaks": 0, "break_reasons": {}}


@contextlib.contextmanager
def warnings_of_lamina():
    """Collect the text of the warnings that lamina gives its user (a part that runs in eager, a recompile limit)."""
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")

        def keep(message, category, *rest, **more):
            if category.__module__.split(".")[0].startswith("lamina"):
                said.append(f"{category.__name__}: {message}"[:600])

        warnings.showwarning = keep
        yield said


def floats(tree) -> list[torch.Tensor]:
    if not isinstance(tree, (torch.Tensor, list, tuple, dict)) and hasattr(tree, "to_tuple"):
        tree = tree.to_tuple()
    leaves = tree_flatten(tree)[0]
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]


def loss_of(out) -> torch.Tensor:
    """The model's own loss where it gives one, otherwise the mean of all float outputs, squared so that every output
    has a gradient of its own size.
    """
    loss = out.get("loss") if hasattr(out, "get") else None
    if isinstance(loss, torch.Tensor):
        return loss
    parts = floats(out)
    return sum((p.float() if p.dtype in (torch.bfloat16, torch.float16) else p).pow(2).mean() for p in parts) / max(
        len(parts), 1
    )


class EagerFails(Exception):
    """Eager itself rejects the model in this dtype; `same`: the compiled model raises the same type of exception."""

    def __init__(self, error: Exception, got: Exception | None) -> None:
        super().__init__(f"{type(error).__name__}: {str(error)[:400]}")
        self.same = type(got) is type(error)


def error_of(step: Step) -> Exception | None:
    """What a call raises, or None."""
    try:
        step.snapshot()
    except Exception as error:
        return error
    return None


class Step:
    """One call of a model: inference, or forward, loss and backward."""

    def __init__(self, model, call, args, kwargs, mode: str, amp: bool, device: str):
        self.model, self.call, self.args, self.kwargs, self.mode, self.amp, self.device = (
            model,
            call,
            args,
            kwargs,
            mode,
            amp,
            device,
        )

    def __call__(self):
        cast = torch.autocast(self.device, dtype=torch.bfloat16) if self.amp else contextlib.nullcontext()
        if self.mode == "infer":
            with torch.no_grad(), cast:
                return self.call(*self.args, **self.kwargs), None
        for p in self.model.parameters():
            p.grad = None
        with cast:
            out = self.call(*self.args, **self.kwargs)
            loss = loss_of(out)
        if loss.requires_grad:
            loss.backward()
        return out, loss

    def snapshot(self, seed: int = 1) -> dict[str, list[torch.Tensor]]:
        torch.manual_seed(seed)
        out, loss = self()
        keep = {"outputs": [t.detach().to(torch.float64, copy=True) for t in floats(out)]}
        if loss is not None:
            keep["loss"] = [loss.detach().to(torch.float64, copy=True)]
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            keep["gradients"] = [g.detach().to(torch.float64, copy=True) for g in grads]
            buffers = [b for b in self.model.buffers() if b.is_floating_point()]
            keep["buffers"] = [b.detach().to(torch.float64, copy=True) for b in buffers]
        return keep


def relative_error(a: list[torch.Tensor], ref: list[torch.Tensor]) -> float:
    """‖a − ref‖ / ‖ref‖ over all tensors together; inf if they do not match in number or shape, or NaN stands in
    different places.
    """
    if len(a) != len(ref) or any(x.shape != y.shape for x, y in zip(a, ref)):
        return float("inf")
    num = den = 0.0
    for x, y in zip(a, ref):
        bad = ~torch.isfinite(y)
        if not torch.equal(torch.isfinite(x), ~bad):
            return float("inf")
        x, y = x.masked_fill(bad, 0), y.masked_fill(bad, 0)
        num += float((x - y).pow(2).sum())
        den += float(y.pow(2).sum())
    return (num / den) ** 0.5 if den else num**0.5


def errors_of(got: dict, want: dict, exact: dict | None, floor: float) -> dict[str, dict]:
    """Part (outputs, loss, ...) -> error of eager and of the compiled model against float64, and the limit."""
    errors: dict[str, dict] = {}
    for part, ref in want.items():
        e_eager = relative_error(ref, exact[part]) if exact and len(exact[part]) == len(ref) else None
        base = exact[part] if e_eager is not None and e_eager != float("inf") else ref
        e_got = relative_error(got.get(part, []), base)
        scale = e_eager or 0.0
        if part == "loss" and e_eager is not None:
            # One number may be right by chance. Relative errors e of n outputs that know nothing of each other leave
            # 2 e / sqrt(n) in the mean of their squares.
            n = sum(t.numel() for t in want["outputs"])
            scale = max(scale, 2 * (errors["outputs"]["eager"] or 0.0) / max(n, 1) ** 0.5)
        limit = 2 * scale + floor
        if e_eager == float("inf") or e_eager is None:
            limit = floor * 10
        errors[part] = {"eager": e_eager, "compiled": e_got, "limit": limit}
    return errors


NEIGHBOURS = 8
"""Programs beside the given one whose results in eager show what one rounding of the weights and inputs does."""


BEYOND_NEIGHBOURS = 4.0
"""How many times the largest error of its neighbours a single tensor may have (of a few hundred, one is unlucky)."""
SAME_IN_FLOAT64 = 1e-6
"""Relative difference of a compiled program in float64 from eager in float64: rounding, however amplified. What is
wrong in the program itself stays as large as it is."""
NARROWING = 2.0**-29
"""Rounding of float64 over that of float32."""
AMPLIFIED = 16.0
"""How many times eager's own float32 error, scaled by `NARROWING`, two float64 programs may be apart: where a gradient
is zero but for rounding, its relative difference is large in any precision."""
LOOSE = 1e-2
"""A limit above this says little; such programs are compared in float64, too."""


def tensor_errors(a: list[torch.Tensor], ref: list[torch.Tensor]) -> list[float]:
    """‖a − ref‖ of each tensor."""
    return [float((x - y).norm()) for x, y in zip(a, ref)]


def beyond_spread(a: list[torch.Tensor], ref: list[torch.Tensor], spread: list[float], floor: float) -> float:
    """The largest share of its allowance that the error of a single tensor takes: an ill-conditioned one must not hide
    a fault in another. Allowed are `BEYOND_NEIGHBOURS` times its error among the neighbours, and rounding."""
    total = sum(float(y.pow(2).sum()) for y in ref) ** 0.5
    allowed = [BEYOND_NEIGHBOURS * s + floor * float(y.norm()) + 1e-7 * total for s, y in zip(spread, ref)]
    shares = [e / m if m else math.inf * (e > 0) if e else 0.0 for e, m in zip(tensor_errors(a, ref), allowed)]
    return max(shares, default=0.0)


def rounding_spread(
    model, args, kwargs, mode: str, amp: bool, device: str, exact: dict
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Part -> the largest error of eager, against float64 of the given program, over programs whose weights and inputs
    differ by a rounding (relative, uniform in ± the unit of the format that is computed in); and part -> the same of
    each tensor.

    A backward-stable program gives the exact result of such a neighbour, so nothing computed in this format can be
    held to less (Higham, Accuracy and Stability of Numerical Algorithms, chapter 1). Where ReLU or max pooling decide
    on the last bit, or batch norm divides by the spread of two values, this is orders of magnitude above the error
    that eager happens to have.
    """
    unit = 2.0**-8 if amp else 2.0**-23
    found: dict[str, float] = {}
    single: dict[str, list[float]] = {}
    for seed in range(NEIGHBOURS):
        source = torch.Generator(device).manual_seed(seed)

        def near(t, source=source):
            if not isinstance(t, torch.Tensor) or not t.is_floating_point():
                return t
            return t * (1 + unit * (2 * torch.rand(t.shape, generator=source, device=t.device, dtype=t.dtype) - 1))

        other = copy.deepcopy(model)
        with torch.no_grad():
            for p in other.parameters():
                p.copy_(near(p))
        got = Step(other, other, tree_map(near, args), tree_map(near, kwargs), mode, amp, device).snapshot()
        for part, ref in exact.items():
            error = relative_error(got.get(part, []), ref)
            if error != float("inf"):
                found[part] = max(found.get(part, 0.0), error)
                errors = tensor_errors(got[part], ref)
                single[part] = [max(pair) for pair in zip(single.get(part, errors), errors)]
    return found, single


def other_batch(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The inputs with one more sample: each tensor whose first size is that of the first tensor."""
    size = next(t.shape[0] for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor) and t.dim())

    def more(t):
        return torch.cat((t, t[:1])) if isinstance(t, torch.Tensor) and t.dim() and t.shape[0] == size else t

    return tree_map(more, args), tree_map(more, kwargs)


def timed(step, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    t = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - t


def measure(steps: dict[str, Step], device: str, budget: float) -> dict[str, float]:
    """Median seconds of a call of each step, taken in turn until the budget in seconds is spent (at least three
    rounds).
    """
    samples: dict[str, list[float]] = {k: [] for k in steps}
    end = time.perf_counter() + budget
    while min(len(s) for s in samples.values()) < 3 or (
        time.perf_counter() < end and len(next(iter(samples.values()))) < 200
    ):
        for k, s in steps.items():
            samples[k].append(timed(s, device))
    return {k: statistics.median(v) for k, v in samples.items()}


def run(a: argparse.Namespace) -> dict:
    from . import registry

    entry = registry.find(a.key)
    res: dict = {
        "key": entry.key,
        "suite": entry.suite,
        "name": entry.name,
        "impl": a.impl,
        "mode": a.mode,
        "dtype": a.dtype,
        "size": a.size,
        "device": a.device,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "torch_breaks": entry.torch_breaks if a.mode == "infer" else entry.torch_breaks_train,
    }
    amp = a.dtype == "amp"
    model, args, kwargs = entry.build(a.size == "small")
    model = (model.train() if a.mode == "train" else model.eval()).to(a.device)
    move = lambda t: t.to(a.device) if isinstance(t, torch.Tensor) else t  # noqa: E731
    args, kwargs = tree_map(move, args), tree_map(move, kwargs)
    start = copy.deepcopy(model.state_dict())

    def fresh(m):
        m.load_state_dict(start)
        return m

    eager_peak = None
    with contextlib.suppress(Exception):  # where eager fails, the comparison below says so
        eager_peak = peak_memory(Step(copy.deepcopy(model), None, args, kwargs, a.mode, amp, a.device), a.device)
    other = copy.deepcopy(model)
    compiled = compile_with(a.impl, other, a.backend, True if a.dynamic else None)

    def compare(args, kwargs) -> tuple[dict, Step, Step]:
        """One call of eager, of float64 and of the compiled model on the same weights: errors, and the steps."""
        eager = Step(fresh(model), model, args, kwargs, a.mode, amp, a.device)
        try:
            want = eager.snapshot()
        except Exception as error:
            step = Step(fresh(other), compiled, args, kwargs, a.mode, amp, a.device)
            raise EagerFails(error, error_of(step)) from error
        exact = None
        if not a.no_float64:
            try:
                double = copy.deepcopy(fresh(model)).double()
                up = lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t  # noqa: E731
                wide = tree_map(up, args), tree_map(up, kwargs)
                exact = Step(double, double, *wide, a.mode, False, a.device).snapshot()
                del double
            except RuntimeError as e:  # a model that makes float32 constants by itself cannot run in float64
                res["float64"] = f"not possible: {str(e)[:120]}"
        step = Step(fresh(other), compiled, args, kwargs, a.mode, amp, a.device)
        torch.manual_seed(1)
        t = time.perf_counter()
        with warnings_of_lamina() as said:
            got = step.snapshot()
        res.setdefault("first_call_s", time.perf_counter() - t)
        if said:
            res.setdefault("warnings", []).extend(said)
        if "graphs" not in res:
            res.update(capture_counts(a.impl))
        errors = errors_of(got, want, exact, FLOOR[a.dtype])
        outside = any(e["compiled"] > e["limit"] for e in errors.values())
        loose = a.dtype == "float32" and any(e["limit"] > LOOSE for e in errors.values())
        if exact is not None and (outside or loose) and not amp and not a.dynamic:
            double = copy.deepcopy(fresh(model)).double()
            call = compile_with(a.impl, double, a.backend, None)
            wide_got = Step(double, call, *wide, a.mode, False, a.device).snapshot()
            wide_graphs = capture_counts(a.impl).get("graphs", 0)
            again: dict = {}
            for part, e in errors.items():
                e["float64"] = relative_error(wide_got.get(part, []), exact[part])
                e["float64_limit"] = max(SAME_IN_FLOAT64, AMPLIFIED * e["eager"] * NARROWING)
                if e["float64"] > e["float64_limit"]:  # a program that draws its own seed differs from itself, too
                    double = copy.deepcopy(fresh(model)).double()
                    again = again or Step(double, double, *wide, a.mode, False, a.device).snapshot()
                    e["float64_limit"] = max(e["float64_limit"], 2 * relative_error(again[part], exact[part]))
            res["graphs_in_float64"] = wide_graphs - res.get("graphs", 0)
        if exact is not None and outside:
            spread, single = rounding_spread(fresh(model), args, kwargs, a.mode, amp, a.device, exact)
            for part, e in errors.items():
                if e["compiled"] > e["limit"] and part in spread and got.get(part):
                    e["spread"] = spread[part]
                    e["tensors"] = beyond_spread(got[part], exact[part], single[part], FLOOR[a.dtype])
                    if e["tensors"] <= 1:
                        e["limit"] = max(e["limit"], 2 * spread[part] + FLOOR[a.dtype])
        fresh(model)
        return errors, eager, step

    res["errors"], eager, step = compare(args, kwargs)
    if a.dynamic:
        res["dynamic"] = True
        res["errors_other_batch"] = compare(*other_batch(args, kwargs))[0]
        after = capture_counts(a.impl)
        res["graphs_other_batch"], res["recompiles"] = after["graphs"], after.get("recompiles", {})
    parts = [*res["errors"].values(), *res.get("errors_other_batch", {}).values()]
    res["accurate"] = all(
        e["compiled"] <= e["limit"] and e.get("float64", 0.0) <= e.get("float64_limit", 0.0) for e in parts
    )
    if a.time > 0:
        other.load_state_dict(start)
        step()
        res["seconds"] = measure(
            {"eager": eager, a.impl: step} if a.impl != "eager" else {"eager": eager}, a.device, a.time
        )
        if a.impl != "eager":
            res["speedup"] = res["seconds"]["eager"] / res["seconds"][a.impl]
        after = capture_counts(a.impl)
        res["graphs_after_timing"] = after["graphs"] - res.get("graphs_in_float64", 0)
    if a.device == "cuda":
        res["peak_eager"], res["peak"] = eager_peak, peak_memory(step, a.device)
    res["max_rss_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return res


def peak_memory(step: Step, device: str) -> int | None:
    """Bytes of device memory at the highest point of a call, above what is held before it (CUDA only)."""
    if device != "cuda":
        return None
    if step.call is None:
        step.call = step.model
    step()
    for p in step.model.parameters():  # or the last step's gradients, which the next one frees, would count as held
        p.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("key")
    ap.add_argument("--impl", choices=IMPLEMENTATIONS, default="lamina")
    ap.add_argument("--backend")
    ap.add_argument("--mode", choices=("infer", "train"), default="infer")
    ap.add_argument("--dtype", choices=("float32", "amp"), default="float32")
    ap.add_argument("--size", choices=("small", "full"), default="small")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--time", type=float, default=2.0, help="seconds spent on timing; 0: none")
    ap.add_argument("--dynamic", action="store_true", help="dynamic=True, and a second call with one more sample")
    ap.add_argument("--no-float64", action="store_true")
    a = ap.parse_args()
    warnings.filterwarnings("ignore")
    try:
        res = run(a)
        res["status"] = "ok" if res["accurate"] else "inaccurate"
    except EagerFails as e:
        given = {k: getattr(a, k) for k in ("key", "impl", "mode", "dtype", "size")}
        res = {**given, "status": "eager fails" if e.same else "error", "error": f"in eager: {e}"}
        res["same_error"] = e.same
    except Exception as e:
        traceback.print_exc()
        res = {
            "key": a.key,
            "impl": a.impl,
            "mode": a.mode,
            "dtype": a.dtype,
            "size": a.size,
            "status": "error",
            "error": f"{type(e).__name__}: {str(e)[:400]}",
        }
    sys.stdout.flush()
    print("\n@@RESULT " + json.dumps(res), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
