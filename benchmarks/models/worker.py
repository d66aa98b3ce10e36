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
import os
import resource
import statistics
import sys
import threading
import time
import traceback
import warnings

import torch
from torch.utils._pytree import tree_flatten, tree_map

from . import judge
from .step import Step, are_unit_vectors

IMPLEMENTATIONS = ("eager", "torch", "lamina")
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


def other_batch(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The inputs with one more sample: each tensor whose first size is that of the first tensor."""
    size = next(t.shape[0] for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor) and t.dim())

    def more(t):
        return torch.cat((t, t[:1])) if isinstance(t, torch.Tensor) and t.dim() and t.shape[0] == size else t

    return tree_map(more, args), tree_map(more, kwargs)


class Clock:
    """Seconds of this process without those spent on what a compiled program is compared with: eager, float64, other
    programs. A time limit counts the former."""

    def __init__(self) -> None:
        self.start, self.left_out, self.since = time.monotonic(), 0.0, None

    @contextlib.contextmanager
    def stopped(self):
        self.since = time.monotonic()
        try:
            yield
        finally:
            self.left_out, self.since = self.left_out + time.monotonic() - self.since, None

    def seconds(self) -> float:
        since = self.since
        return (time.monotonic() if since is None else since) - self.start - self.left_out

    def limit(self, seconds: float, result: dict) -> None:
        """Prints `result` and ends this process when the limit is reached."""

        def watch() -> None:
            while self.seconds() < seconds:
                time.sleep(0.2)
            print("\n@@RESULT " + json.dumps({**result, "status": "timeout"}), flush=True)
            os._exit(0)

        threading.Thread(target=watch, daemon=True).start()


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


def run(a: argparse.Namespace, clock: Clock) -> dict:
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
    with contextlib.suppress(Exception), clock.stopped():  # where eager fails, the comparison below says so
        eager_peak = peak_memory(Step(copy.deepcopy(model), None, args, kwargs, a.mode, amp, a.device), a.device)
    other = copy.deepcopy(model)
    compiled = compile_with(a.impl, other, a.backend, True if a.dynamic else None)
    floor = judge.FLOOR[a.dtype]

    def compare(args, kwargs) -> tuple[dict, Step, Step]:
        """One call of eager, of float64 and of the compiled model on the same weights: errors, and the steps."""
        eager = Step(fresh(model), model, args, kwargs, a.mode, amp, a.device)
        with clock.stopped():
            try:
                want = eager.snapshot()
            except Exception as error:
                step = Step(fresh(other), compiled, args, kwargs, a.mode, amp, a.device)
                raise EagerFails(error, error_of(step)) from error
            if a.mode == "train" and are_unit_vectors(want["outputs"]):
                eager.weighted = True
                fresh(model)
                want = eager.snapshot()
            exact = wide = None
            if not a.no_float64:
                try:
                    double, *inputs = judge.in_float64(fresh(model), args, kwargs)
                    wide = eager.like(double, double, *inputs)
                    exact = wide.snapshot()
                except RuntimeError as e:  # a model that makes float32 constants by itself cannot run in float64
                    res["float64"] = f"not possible: {str(e)[:120]}"
        step = eager.like(fresh(other), compiled, args, kwargs)
        torch.manual_seed(1)
        t = time.perf_counter()
        with warnings_of_lamina() as said:
            got = step.snapshot()
        res.setdefault("first_call_s", time.perf_counter() - t)
        if said:
            res.setdefault("warnings", []).extend(said)
        if "graphs" not in res:
            res.update(capture_counts(a.impl))
        errors = judge.errors_of(got, want, exact, floor)
        if exact is not None:
            with clock.stopped():
                look_closer(errors, got, exact, eager, step, wide)
        fresh(model)
        return errors, eager, step

    def look_closer(errors: dict, got: dict, exact: dict, eager: Step, step: Step, wide: Step) -> None:
        """What the limits alone cannot decide."""
        loose = a.dtype == "float32" and any(e["limit"] > judge.LOOSE for e in errors.values())
        in_both = not amp and not a.dynamic
        if in_both and (loose or judge.is_outside(errors)):
            wide.model.load_state_dict(start)
            judge.compare_in_float64(errors, exact, wide, lambda m: compile_with(a.impl, m, a.backend, None))
            res["graphs_in_float64"] = capture_counts(a.impl).get("graphs", 0) - res.get("graphs", 0)
        if judge.is_outside(errors):
            near = judge.rounding_spread(eager, exact, fresh)
            judge.allow_spread(errors, got, exact, near, floor)
            if in_both and judge.is_outside(errors):
                judge.allow_tie(errors, got, eager, step, fresh, floor)

    res["errors"], eager, step = compare(args, kwargs)
    if a.dynamic:
        res["dynamic"] = True
        res["errors_other_batch"] = compare(*other_batch(args, kwargs))[0]
        after = capture_counts(a.impl)
        res["graphs_other_batch"], res["recompiles"] = after["graphs"], after.get("recompiles", {})
    res["accurate"] = judge.is_right(res["errors"]) and judge.is_right(res.get("errors_other_batch", {}))
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
    ap.add_argument("--limit", type=float, help="seconds for all but what the program is compared with")
    ap.add_argument("--no-float64", action="store_true")
    a = ap.parse_args()
    warnings.filterwarnings("ignore")
    clock = Clock()
    if a.limit:
        given = {k: getattr(a, k) for k in ("key", "impl", "mode", "dtype", "size")}
        clock.limit(a.limit, {**given, "error": f"no result in {a.limit:g} s"})
    try:
        res = run(a, clock)
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
