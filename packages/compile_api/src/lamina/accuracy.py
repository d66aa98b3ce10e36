"""`lamina.check(model)(*args)`: every rung of the ladder against eager and float64; the first stage that differs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import config, failures
from ._torch import allocations
from .backends import LADDER
from .errors import CheckError
from .options import CompileOptions, check_flag, check_model, check_number, check_rungs, settings_of
from .recording import gradient_inputs, gradients, leaves, plain, record

STAGE_OF_RUNG = {
    "eager": "capture (lamina_dynamo)",
    "aot_eager": "forward and backward graphs (lamina_aot_autograd)",
    "aot_prims": "decomposition (lamina_primtorch)",
    "reference": "loop-level IR (lamina_inductor)",
    "inductor": "generated code (lamina_inductor)",
}
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-10,
             torch.complex64: 2e-5, torch.complex128: 1e-10}
"""Largest difference from eager, relative to the largest value of the tensor, where float64 cannot be asked."""
WORSE_THAN_EAGER = 2.0
"""How much further from float64 than eager a result may be, besides `ROUNDINGS`."""
ROUNDINGS = {torch.float16: 2, torch.bfloat16: 2}
ROUNDINGS_OF_SUMS = 16
"""Roundings, each of the dtype's eps at the tensor's largest value, that another order of computing may cost. Half
precision is rounded once from float32; in the others sums are added up in the dtype itself, where eager may be
lucky."""
LOST = 0.1
WORSE_WHEN_LOST = 8.0
"""Where eager's error is more than this share of the largest true value, eager has no digit right: what it gives is
the rounding noise of larger terms that cancel, and compiled code may draw that noise anew."""
VANISHING = 8
"""Gradients that are smaller than so many eps of the largest gradient are zero but for rounding, such as that of a bias
before a batch norm. What is computed must be as small; its digits are not compared."""


MORE_MEMORY, SMALL_MEMORY = 1.1, 1 << 22
"""A call may hold this times what eager holds at its highest point, and this many bytes more."""


@dataclass
class Outcome:
    """What one way of running gave, as plain copies."""

    values: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor | None] = field(default_factory=list)
    arguments: list[torch.Tensor] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    aliases: list[tuple[str, str]] = field(default_factory=list)
    structure: str = ""
    random_state: torch.Tensor | None = None
    peak_bytes: int = 0
    error: BaseException | None = None


@dataclass
class Report:
    """The differences of each rung; `str()` is a table. `first` is the first rung that differs, or None. `raised`: what
    the program itself raises in eager, where it does; then only exceptions are compared."""

    differences: dict[str, list[str]]
    raised: str | None = None

    @property
    def ok(self) -> bool:
        """True if no rung differs."""
        return not any(self.differences.values())

    @property
    def first(self) -> str | None:
        """The first rung that differs."""
        return next((rung for rung, found in self.differences.items() if found), None)

    @property
    def stage(self) -> str | None:
        """The stage that the first differing rung adds."""
        return STAGE_OF_RUNG.get(self.first or "", self.first)

    def raise_if_different(self) -> None:
        """Raise CheckError with the table unless every rung agrees."""
        if not self.ok:
            raise CheckError(str(self), stage=self.stage, hint="lamina.bisect(model)(*args) names the operator")

    def __str__(self) -> str:
        lines = [f"the program raises in eager: {self.raised}"] if self.raised else []
        for rung, found in self.differences.items():
            lines.append(f"{rung:10} {'same as eager' if not found else f'{len(found)} differences'}")
            lines += [f"           {d}" for d in found[:12]]
        if self.first:
            lines.append(f"first stage that differs: {self.stage}")
        return "\n".join(lines)


def check(
    model: Any,
    *,
    backends: Sequence[str] = LADDER,
    backward: bool = True,
    tolerance: float | None = None,
    **options: Any,
) -> Callable[..., Report]:
    """Compare each rung of the ladder with eager: values, gradients, dtypes, shapes, strides, mutation of arguments
    and buffers, aliasing, random state, exceptions, and of rungs that generate code the memory of a call at its
    highest point. Values may differ if they are as near to float64 as eager's.

    The model and the arguments are copied for each run and stay as they are. Returns a function to call with the
    program's arguments; it returns a Report. OptionError for an argument that is not one of the values it takes.
    """
    check_model("check", model)
    check_flag("check", "backward", backward)
    if tolerance is not None:
        check_number("check", "tolerance", tolerance, 0)
    chosen = {name: settings_of("check", options, backend=name) for name in check_rungs("check", backends)}
    model = plain(model)

    def run(*args: Any, **kwargs: Any) -> Report:
        seed = torch.initial_seed()
        want = run_once(model, args, kwargs, None, backward, seed)
        exact = run_once(model, args, kwargs, None, backward, seed, torch.float64)
        found = {}
        for backend, settings in chosen.items():
            got = run_once(model, args, kwargs, settings, backward, seed)
            if backend in LADDER[:-1]:  # they run operator by operator, or interpret: memory is not what they are for
                got.peak_bytes = 0
            found[backend] = differences(want, got, exact, tolerance)
        return Report(found, None if want.error is None else _name(want.error))

    return run


def run_once(
    model: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    settings: CompileOptions | None,
    backward: bool,
    seed: int,
    dtype: torch.dtype | None = None,
) -> Outcome:
    """Run copies of model and arguments, eager (settings None) or compiled, and keep all that can be compared."""
    own = copy.deepcopy(model)
    args, kwargs = copy_tree((tuple(args), dict(kwargs)), dtype)
    if dtype is not None and isinstance(own, torch.nn.Module):
        own = own.to(dtype)
    outcome = Outcome()
    torch.manual_seed(seed)
    fn = own
    try:
        if settings is None:
            result = own(*args, **kwargs)
            wanted = gradient_inputs(own, (args, kwargs))
            grads = gradients(result, wanted) if backward else []
        else:
            with config.patch(strict=True, failure_script=False):
                recording = record(own, settings, args, kwargs, backward=backward)
            if recording.error is not None:
                raise recording.error
            result, grads, fn = recording.result, recording.gradients, recording.compiled
    except Exception as error:
        outcome.error = error
        return outcome
    outcome.random_state = torch.get_rng_state()
    outputs, inputs = leaves(result), leaves((args, kwargs))
    outcome.structure = str(pytree.tree_structure(result))
    outcome.values = [as_seen(t) for t in outputs]
    outcome.gradients = [None if g is None else as_seen(g) for g in grads]
    outcome.arguments = [as_seen(t) for t in inputs]
    if isinstance(own, torch.nn.Module):
        outcome.state = {k: v.detach().clone() for k, v in own.state_dict().items()}
    outcome.aliases = shared_storage(outputs, inputs)
    if dtype is None:
        del result, grads, outputs, inputs
        outcome.peak_bytes = peak_bytes(own, fn, args, kwargs, backward)
    return outcome


def peak_bytes(model: Any, fn: Any, args: Any, kwargs: Any, backward: bool) -> int:
    """Return the bytes that one more call of `fn` holds at its highest point, above what is held before it; 0 if it
    raises. `model` is what `fn` was made from."""

    def call() -> None:
        result = fn(*args, **kwargs)
        if backward:
            gradients(result, gradient_inputs(model, (args, kwargs)))

    state = torch.get_rng_state()
    try:
        with config.patch(strict=True, failure_script=False):
            if any(t.is_cuda for t in [*leaves((args, kwargs)), *gradient_inputs(model, ())]):
                torch.cuda.synchronize()
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                call()
                torch.cuda.synchronize()
                return torch.cuda.max_memory_allocated() - before
            return max(itertools.accumulate(allocations(call)), default=0)
    except Exception:
        return 0
    finally:
        torch.set_rng_state(state)


def copy_tree(tree: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a copy of nested containers with copied tensors: strides, flags and shared storage kept."""
    memo: dict[int, Any] = {}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if dtype is not None and leaf.is_floating_point():
            return leaf.detach().to(dtype, copy=True).requires_grad_(leaf.requires_grad)
        return copy.deepcopy(leaf, memo) if leaf.is_leaf else leaf.detach().clone()

    return pytree.tree_map(one, tree)


def as_seen(t: torch.Tensor) -> torch.Tensor:
    """Return a detached copy with the same strides."""
    if t.layout != torch.strided:
        return t.detach().clone()
    kept = copy_in_layout(t)
    kept.seen_requires_grad = t.requires_grad  # type: ignore[attr-defined]
    return kept


def copy_in_layout(t: torch.Tensor) -> torch.Tensor:
    """Return a detached copy with the strides of a strided tensor, elements that share memory included."""
    plain = t.detach().resolve_conj().resolve_neg()
    if not plain.numel():
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
    span = 1 + sum((n - 1) * s for n, s in zip(plain.shape, plain.stride(), strict=True))
    return plain.as_strided((span,), (1,)).clone().as_strided(plain.shape, plain.stride())


def shared_storage(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[tuple[str, str]]:
    """Return the pairs of outputs and inputs that share memory."""
    named = [*((f"output {i}", t) for i, t in enumerate(outputs)), *((f"input {i}", t) for i, t in enumerate(inputs))]
    found = []
    for i, (a, x) in enumerate(named):
        for b, y in named[i + 1:]:
            try:
                same = x.numel() and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
            except (RuntimeError, NotImplementedError):
                same = False
            if same:
                found.append((a, b))
    return found


def differences(want: Outcome, got: Outcome, exact: Outcome | None = None, tolerance: float | None = None) -> list[str]:
    """Return a line for each way in which `got` is not `want`; values nearer to `exact` than eager's pass."""
    if want.error is not None or got.error is not None:
        if type(want.error) is type(got.error):
            return []
        return [f"exception: {_name(want.error)} became {_name(got.error)}"]
    found = []
    if want.structure != got.structure:
        found.append(f"structure of the result: {want.structure} became {got.structure}")
    if exact is not None and exact.error is not None:
        exact = None
    for label in ("values", "gradients", "arguments"):
        old, new = getattr(want, label), getattr(got, label)
        if len(old) != len(new):
            found.append(f"{label}: {len(old)} became {len(new)}")
            continue
        precise = getattr(exact, label) if exact is not None else []
        precise = precise if len(precise) == len(old) else [None] * len(old)
        top = max((largest(t) for t in old if t is not None), default=0.0) if label == "gradients" else 0.0
        for i, (a, b, e) in enumerate(zip(old, new, precise, strict=True)):
            found += [f"{label[:-1]} {i}: {d}" for d in tensor_differences(a, b, e, tolerance, top)]
    for key in want.state:
        precise_ = exact.state.get(key) if exact is not None else None
        found += [f"state {key}: {d}" for d in tensor_differences(want.state[key], got.state[key], precise_, tolerance)]
    if want.aliases != got.aliases:
        found.append(f"shared memory: {want.aliases} became {got.aliases}")
    if want.random_state is not None and not torch.equal(want.random_state, got.random_state):  # type: ignore[arg-type]
        found.append("random state after the call differs")
    if want.peak_bytes and got.peak_bytes > MORE_MEMORY * want.peak_bytes + SMALL_MEMORY:
        found.append(f"peak memory of a call: {want.peak_bytes} became {got.peak_bytes} bytes")
    return found


def largest(t: torch.Tensor) -> float:
    """Return the largest finite magnitude in a floating tensor, 0.0 for others."""
    if not t.is_floating_point() or not t.numel() or t.layout != torch.strided:
        return 0.0
    finite = t[t.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def tensor_differences(
    want: torch.Tensor | None,
    got: torch.Tensor | None,
    exact: torch.Tensor | None,
    tolerance: float | None,
    top: float = 0.0,
) -> list[str]:
    """Return what differs between two tensors. `top`: the largest gradient, if they are gradients."""
    if want is None or got is None:
        return [] if want is got else [f"{_kind(want)} became {_kind(got)}"]
    found = []
    for what in ("dtype", "shape", "device", "layout"):
        if getattr(want, what) != getattr(got, what):
            found.append(f"{what} {getattr(want, what)} became {getattr(got, what)}")
    flags = [getattr(t, "seen_requires_grad", None) for t in (want, got)]
    if flags[0] != flags[1]:
        found.append(f"requires_grad {flags[0]} became {flags[1]}")
    if found or want.layout != torch.strided:
        return found
    if want.numel() and significant_strides(want) != significant_strides(got):
        found.append(f"stride {want.stride()} became {got.stride()}")
    if torch.equal(want, got) or not want.numel():
        return found
    if not (want.is_floating_point() or want.is_complex()):
        wrong = int((want != got).sum())
        return [*found, f"{wrong} of {want.numel()} elements differ"]
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (want, got))
    a, b = a.double(), b.double()
    odd = (a.isnan() != b.isnan()) | ((a.isinf() | b.isinf()) & (a != b))
    if bool(odd.any()):
        return [*found, f"{int(odd.sum())} of {a.numel()} elements differ in being nan or infinite"]
    finite = a.isfinite()
    if not bool(finite.any()):
        return found
    a, b = a[finite], b[finite]
    scale, far = float(a.abs().max()), float((a - b).abs().max())
    eps = torch.finfo(want.dtype).eps
    noise = VANISHING * eps * top
    if tolerance is not None:
        if far <= tolerance * scale:
            return found
    elif exact is None or exact.shape != want.shape or want.dtype in (torch.float64, torch.complex128):
        if far <= TOLERANCE.get(want.dtype, 1e-5) * scale or scale <= noise and float(b.abs().max()) <= noise:
            return found
        return [*found, f"off by {far:.3g} (values to {scale:.3g})"]
    if exact is None or exact.shape != want.shape:
        return [*found, f"off by {far:.3g} (values to {scale:.3g})"]
    e = (torch.view_as_real(exact) if exact.is_complex() else exact).double()[finite]
    true = float(e.abs().max())
    eager_error, own_error = float((a - e).abs().max()), float((b - e).abs().max())
    worse = WORSE_WHEN_LOST if eager_error > LOST * true else WORSE_THAN_EAGER
    allowed = worse * eager_error + ROUNDINGS.get(want.dtype, ROUNDINGS_OF_SUMS) * eps * true
    if own_error <= (max(allowed, noise) if true <= noise else allowed):
        return found
    return [*found, f"off by {far:.3g} (values to {scale:.3g}; from float64: eager {eager_error:.3g}, "
                    f"compiled {own_error:.3g}, allowed {allowed:.3g})"]


def significant_strides(t: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of dimensions longer than 1; the others carry no meaning."""
    return tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1)


def _kind(value: Any) -> str:
    return "nothing" if value is None else "a tensor"


def _name(error: BaseException | None) -> str:
    """An exception in one line; of what capture hands on, the exception that it hands on."""
    if error is None:
        return "no exception"
    error = failures.compile_error_in(error) or error
    return f"{type(error).__name__}: {failures.brief(str(error))}"
