"""The foundation numbers: one real training step of two known models, first calls, cost of a call, import time.

    python benchmarks/foundation.py [--only NAME,NAME] [--json PATH] [--threads N]

Each measurement runs in a process of its own with an empty kernel cache; lamina and torch.compile run in turn, so that
both see the same machine. The table says for each number what was asked for and whether it was reached.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
MARK = "@@NUMBERS "


# ------------------------------------------------------------------------------------------------ inside one process
def compiler(way: str) -> Callable[..., Any]:
    """Return the compile function of a way: eager, lamina or torch."""
    import torch

    if way == "eager":
        return lambda model, **_: model
    if way == "torch":
        return torch.compile
    import lamina

    return lamina.compile


def counted(way: str) -> Callable[[], dict[str, Any]]:
    """Start counting graphs and breaks; the returned function gives the numbers."""
    if way == "lamina":
        import lamina_dynamo

        def read() -> dict[str, Any]:
            now = lamina_dynamo.counters()
            return {"graphs": now.get("graphs"), "breaks": sum(now.get("breaks", {}).values()),
                    "break_kinds": dict(now.get("breaks", {}))}

        return read
    if way == "torch":
        from torch._dynamo.utils import counters

        return lambda: {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values())}
    return lambda: {}


def median_ms(step: Callable[[], Any], seconds: float = 2.0, least: int = 5) -> float:
    """Return the median milliseconds of a call after a warm-up."""
    for _ in range(2):
        step()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < until and len(times) < 2000):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def side_by_side_ms(steps: list[Callable[[], Any]], seconds: float, least: int = 3) -> list[float]:
    """Return the median milliseconds of calls that take turns: a machine whose pace changes changes it for all."""
    times: list[list[float]] = [[] for _ in steps]
    for step in steps:
        step()
    until = time.perf_counter() + seconds
    while len(times[0]) < least or time.perf_counter() < until:
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) * 1e3 for taken in times]


def processor_seconds() -> float:
    """Return the processor time of this process and of the compilers it ran, which other jobs do not lengthen."""
    return sum(os.times()[:4])


def difference(a: Any, b: Any) -> float:
    """Return the largest difference relative to the largest value."""
    return float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-12))


def measure_resnet(way: str) -> dict[str, Any]:
    """torchvision's ResNet-18: `out.sum().backward()` and SGD on randn(16, 3, 224, 224)."""
    import torch

    from benchmarks.models.vision_packages import import_torchvision

    resnet18 = import_torchvision().models.resnet18

    def build() -> Any:
        torch.manual_seed(0)
        model = resnet18()
        return model, torch.optim.SGD(model.parameters(), lr=0.01)

    torch.manual_seed(1)
    x = torch.randn(16, 3, 224, 224)

    def one_step(net: Any, optimizer: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        out = net(x)
        out.sum().backward()
        optimizer.step()
        return out

    model, optimizer = build()
    net = compiler(way)(model)
    read = counted(way)
    start, processor = time.perf_counter(), processor_seconds()
    out = one_step(net, optimizer)
    numbers: dict[str, Any] = {"first_call_s": time.perf_counter() - start,
                               "first_call_processor_s": processor_seconds() - processor, **read()}
    if way != "eager":
        plain, plain_optimizer = build()
        want = one_step(plain, plain_optimizer)
        numbers["output"] = difference(out, want)
        numbers["gradients"] = max(
            difference(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters(), strict=True)
        )
        exact, _ = build()
        exact.double()
        exact(x.double()).sum().backward()
        for key, of in (("gradients_from_float64", model), ("eager_gradients_from_float64", plain)):
            numbers[key] = max(
                difference(p.grad, q.grad) for p, q in zip(of.parameters(), exact.parameters(), strict=True)
            )
        del exact
        numbers["buffers"] = max(difference(a, b) for a, b in zip(model.buffers(), plain.buffers(), strict=True))
        numbers["parameters"] = max(
            difference(p, q) for p, q in zip(model.parameters(), plain.parameters(), strict=True)
        )
        numbers["step_ms"], numbers["eager_step_ms"] = side_by_side_ms(
            [lambda: one_step(net, optimizer), lambda: one_step(plain, plain_optimizer)], 16.0
        )
    return numbers


def measure_bert(way: str) -> dict[str, Any]:
    """transformers' BERT-base for masked language modelling, random weights, labels given: one training step."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    ids = torch.randint(0, 30000, (2, 64))
    labels = torch.randint(0, 30000, (2, 64))
    net = compiler(way)(model)
    read = counted(way)
    start, processor = time.perf_counter(), processor_seconds()
    out = net(input_ids=ids, labels=labels)
    out.loss.backward()
    numbers: dict[str, Any] = {"first_call_s": time.perf_counter() - start,
                               "first_call_processor_s": processor_seconds() - processor, **read(),
                               "loss": float(out.loss.detach())}
    if way != "eager":
        grads = [p.grad.clone() if p.grad is not None else None for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        want = model(input_ids=ids, labels=labels)
        want.loss.backward()
        numbers["loss_difference"] = difference(out.loss.detach(), want.loss.detach())
        from lamina.accuracy import VANISHING

        eager = [p.grad for p in model.parameters()]
        exact = copy.deepcopy(model).double()
        exact.zero_grad(set_to_none=True)
        exact(input_ids=ids, labels=labels).loss.backward()
        kept = [k for k, p in enumerate(exact.parameters()) if p.grad is not None]
        truth = [p.grad for p in exact.parameters()]
        largest = max(float(truth[k].abs().max()) for k in kept)
        eps = torch.finfo(torch.float32).eps
        # zero but for rounding, as that of the bias of attention keys: `lamina.check` says how small
        zero = [k for k in kept if float(truth[k].abs().max()) <= VANISHING * eps * largest]
        rest = [k for k in kept if k not in zero]
        numbers["gradients"] = max(difference(grads[k], truth[k]) for k in rest)
        numbers["gradients_of_eager"] = max(difference(eager[k], truth[k]) for k in rest)
        noise = max((float(grads[k].abs().max()) for k in zero), default=0.0)
        numbers["vanishing"] = {"tensors": len(zero), "eps_of_largest": noise / largest / eps}
    return numbers


def mlp() -> tuple[Any, Any]:
    """Return a 4-layer MLP of width 32 and its input of batch 8."""
    import torch

    torch.manual_seed(0)
    layers: list[Any] = []
    for _ in range(4):
        layers += [torch.nn.Linear(32, 32), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]), torch.randn(8, 32)


def measure_mlp(way: str) -> dict[str, Any]:
    """A 4-layer MLP, batch 8, width 32, inference: first call and cost of a call, guards included."""
    import torch

    sys.setswitchinterval(1.0)
    model, x = mlp()
    net = compiler(way)(model.eval())
    read = counted(way)
    with torch.no_grad():
        want = model(x)
        start, processor = time.perf_counter(), processor_seconds()
        out = net(x)
        numbers: dict[str, Any] = {"first_call_s": time.perf_counter() - start,
                                   "first_call_processor_s": processor_seconds() - processor, **read()}
        numbers["output"] = difference(out, want)
        for _ in range(200):
            net(x)
        times = []
        for _ in range(40):
            start = time.perf_counter()
            for _ in range(200):
                net(x)
            times.append((time.perf_counter() - start) / 200)
        numbers["call_us"] = min(times) * 1e6  # the least disturbed of 40 batches of calls
        numbers["call_us_median"] = statistics.median(times) * 1e6
    return numbers


def batches_us(steps: list[Callable[[], Any]], batches: int = 60, calls: int = 50) -> list[float]:
    """Return the median microseconds of a call over batches that take turns."""
    times: list[list[float]] = [[] for _ in steps]
    for step in steps:
        for _ in range(calls):
            step()
    for _ in range(batches):
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                step()
            taken.append((time.perf_counter() - start) / calls * 1e6)
    return [statistics.median(taken) for taken in times]


def measure_mlp_step(way: str) -> dict[str, Any]:
    """A training step of that MLP beside eager's: forward and backward alone, with what a loop does around them, and
    the whole step as one compiled function."""
    import torch

    sys.setswitchinterval(1.0)
    compile_ = compiler(way)

    def steps(make: Callable[[Any], Any], whole: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
        model, x = mlp()
        net = make(model)
        parameters, out = tuple(model.parameters()), torch.randn(8, 32)
        optimizer = torch.optim.SGD(parameters, lr=1e-3)

        def with_loss() -> None:
            optimizer.zero_grad(set_to_none=True)
            net(x).square().mean().backward()

        def with_optimizer() -> None:
            with_loss()
            optimizer.step()

        def everything() -> None:
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()

        return {
            "alone": lambda: torch.autograd.grad(net(x), parameters, out),
            "added": lambda: net(x).backward(out),  # to the gradients that are there
            "with_loss": with_loss,
            "with_optimizer": with_optimizer,
            "one_function": whole(everything),
        }

    def same(f: Any) -> Any:
        return f

    own, eager = steps(compile_, compile_ if way == "lamina" else same), steps(same, same)
    numbers: dict[str, Any] = {}
    for name, step in own.items():
        numbers[f"{name}_us"], numbers[f"{name}_eager_us"] = batches_us([step, eager[name]])
        numbers[f"{name}_ratio"] = numbers[f"{name}_us"] / numbers[f"{name}_eager_us"]
    return numbers


def measure_import(way: str) -> dict[str, Any]:
    """What `import lamina` adds to `import torch`."""
    import torch  # noqa: F401

    start = time.perf_counter()
    if way == "lamina":
        import lamina

        assert lamina.compile
    return {"seconds": time.perf_counter() - start,
            "heavy": sorted({"sympy", "triton"} & set(sys.modules)) if way == "lamina" else []}


STEPS = {"alone": "at most 1/2 of eager", "added": "", "with_loss": "", "with_optimizer": "",
         "one_function": "at most 1/2 of eager"}
"""Kinds of a training step of the MLP -> what is asked of it."""
MEASURES = {"import": measure_import, "mlp": measure_mlp, "mlp_step": measure_mlp_step,
            "resnet18": measure_resnet, "bert": measure_bert}
WAYS = {"import": ["lamina"], "mlp": ["eager", "torch", "lamina"], "mlp_step": ["torch", "lamina"],
        "resnet18": ["torch", "lamina"], "bert": ["torch", "lamina"]}


# -------------------------------------------------------------------------------------------------------- the driver
def run_worker(name: str, way: str, threads: int, limit: float) -> dict[str, Any]:
    """Run one measurement in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "LAMINA_CACHE_DIR": f"{cache}/lamina", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch",
               "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1",
               "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        try:
            done = subprocess.run([sys.executable, __file__, "--worker", name, way], env=env, capture_output=True,
                                  text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"no result in {limit:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line[len(MARK):])
    return {"error": " ".join(done.stderr.strip().splitlines()[-3:])[-400:] or f"exit status {done.returncode}"}


def step_row(numbers: dict[str, dict[str, Any]], kind: str) -> Callable[[], tuple[str, bool]]:
    """Return what computes the row of one kind of training step."""

    def compute() -> tuple[str, bool]:
        shown = [f"{way} {n[f'{kind}_us']:.1f} (x {n[f'{kind}_ratio']:.2f} of eager)" for way, n in numbers.items()]
        return ", ".join(shown), not STEPS[kind] or numbers["lamina"][f"{kind}_ratio"] <= 0.5

    return compute


def verdicts(numbers: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, str, str, bool | None]]:
    """Return (what, measured, asked for, reached) rows; reached is None where a number is missing."""
    rows: list[tuple[str, str, str, bool | None]] = []

    def row(what: str, asked: str, compute: Callable[[], tuple[str, bool]]) -> None:
        try:
            rows.append((what, *(lambda t: (t[0], asked, t[1]))(compute())))
        except (KeyError, TypeError):
            rows.append((what, "not measured", asked, None))

    def ratio(name: str, key: str, limit: float) -> Callable[[], tuple[str, bool]]:
        def compute() -> tuple[str, bool]:
            own, theirs = numbers[name]["lamina"][key], numbers[name]["torch"][key]
            return f"{own:.2f} against {theirs:.2f} (x {own / theirs:.2f})", own / theirs <= limit

        return compute

    if "import" in numbers:
        row("import lamina, s above torch", "< 0.3, no sympy, no triton", lambda: (
            f"{numbers['import']['lamina']['seconds']:.3f} {numbers['import']['lamina']['heavy'] or ''}".strip(),
            numbers["import"]["lamina"]["seconds"] < 0.3 and not numbers["import"]["lamina"]["heavy"]))
    if "mlp" in numbers:
        row("MLP first call, s", "at most 1/6 of torch.compile", ratio("mlp", "first_call_s", 1 / 6))
        row("MLP call, us", "at most 1/2 of torch.compile", ratio("mlp", "call_us", 1 / 2))
        row("MLP call against eager, us", "", lambda: (
            f"{numbers['mlp']['lamina']['call_us']:.1f} against {numbers['mlp']['eager']['call_us']:.1f}", True))
    if "mlp_step" in numbers:
        for kind, asked in STEPS.items():
            row(f"MLP training step, {kind.replace('_', ' ')}, us", asked, step_row(numbers["mlp_step"], kind))
    if "resnet18" in numbers:
        own = numbers["resnet18"].get("lamina", {})
        row("ResNet-18 training first call, s", "at most 1/3 of torch.compile",
            ratio("resnet18", "first_call_s", 1 / 3))
        row("ResNet-18 graphs, breaks", "1, 0", lambda: (
            f"{own['graphs']}, {own['breaks']}", (own["graphs"], own["breaks"]) == (1, 0)))
        for key in ("output", "gradients", "buffers", "parameters"):
            row(f"ResNet-18 {key}, relative difference", "1e-4", lambda key=key: (f"{own[key]:.1e}", own[key] <= 1e-4))
        row("ResNet-18 training step, ms", "", lambda: (
            ", ".join(f"{way} {numbers['resnet18'][way]['step_ms']:.0f} (eager beside it "
                      f"{numbers['resnet18'][way]['eager_step_ms']:.0f})" for way in WAYS["resnet18"]), True))
        row("ResNet-18 gradients from float64, relative", "at most 2x eager's", lambda: (
            f"{own['gradients_from_float64']:.1e} against {own['eager_gradients_from_float64']:.1e}",
            own["gradients_from_float64"] <= 2 * own["eager_gradients_from_float64"]))
    if "bert" in numbers:
        own, theirs = numbers["bert"].get("lamina", {}), numbers["bert"].get("torch", {})
        row("BERT-base breaks", "at most torch.compile's", lambda: (
            f"{own['breaks']} against {theirs['breaks']}", own["breaks"] <= theirs["breaks"]))
        row("BERT-base loss, relative difference", "1e-4", lambda: (
            f"{own['loss_difference']:.1e}", own["loss_difference"] <= 1e-4))
        row("BERT-base gradients from float64, relative", "at most 2x eager's", lambda: (
            f"{own['gradients']:.1e} against {own['gradients_of_eager']:.1e}",
            own["gradients"] <= 2 * own["gradients_of_eager"]))
        row("BERT-base gradients that are zero, eps of the largest", "at most 8", lambda: (
            f"{own['vanishing']['eps_of_largest']:.2f} ({own['vanishing']['tensors']} tensors)",
            own["vanishing"]["eps_of_largest"] <= 8))
        row("BERT-base training first call, s", "", lambda: (
            f"{own['first_call_s']:.1f} against {theirs['first_call_s']:.1f}", True))
    return rows


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table; exit status 1 if a number that was asked for is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MEASURES))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=420.0, help="seconds for one measurement")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        name, way = args.worker
        print(MARK + json.dumps(MEASURES[name](way)), flush=True)
        return 0
    import torch

    numbers: dict[str, dict[str, dict[str, Any]]] = {}
    for name in args.only.split(","):
        numbers[name] = {}
        for way in WAYS[name]:
            start = time.perf_counter()
            numbers[name][way] = run_worker(name, way, args.threads, args.limit)
            shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in numbers[name][way].items()}
            print(f"{name} {way} ({time.perf_counter() - start:.0f} s): {shown}", flush=True)
    rows = verdicts(numbers)
    width = max((len(r[0]) for r in rows), default=0)
    print()
    for what, measured, asked, reached in rows:
        print(f"{'  ?' if reached is None else ' ok' if reached else 'NOT'}  {what:{width}}  {measured}"
              + (f"   [{asked}]" if asked else ""))
    if args.json:
        made_on = {"date": datetime.date.today().isoformat(), "machine": platform.processor() or platform.machine(),
                   "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
        args.json.write_text(json.dumps({"made_on": made_on, "numbers": numbers}, indent=1) + "\n")
    return int(any(r[3] is not True for r in rows))


if __name__ == "__main__":
    sys.exit(main())
