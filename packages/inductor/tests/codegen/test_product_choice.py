"""Products measured against the library, with a stand-in for the measuring; which products become loops by rule."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton exists for Linux only")

from lamina_inductor import observe
from lamina_inductor.codegen import product_choice
from lamina_inductor.codegen.product_choice import Problem, Seconds, bare_product, is_own_faster
from lamina_inductor.codegen.triton_autotune import candidates
from lamina_inductor.config import Config
from lamina_inductor.lowering.products import is_small

CARD = torch.device("cuda", 0)


def problem(m=512, n=768, k=640, batch=0, dtype=torch.bfloat16, device=CARD):
    lead = (m * k,) if batch else ()
    return Problem(dtype, batch, m, n, k, (*lead, k, 1), (*(n * k,) * bool(batch), 1, k), device)


@pytest.fixture
def card(monkeypatch, tmp_path):
    """Answers what `times` holds and notes what was measured."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    monkeypatch.setattr(product_choice, "_spent", 0.0)
    seen = []

    def measure(p, folder):
        seen.append(p)
        return seen.times

    class Seen(list):
        times = Seconds(1.0, 2.0)

    seen = Seen()
    monkeypatch.setattr(product_choice, "measure", measure)
    return seen, Config(cache_dir=str(tmp_path), max_autotune=True)


def test_the_faster_one_is_chosen_once(card):
    seen, config = card
    events = []
    remove = observe.on_event(lambda e: events.append(e.payload) if e.name == "autotune" else None)
    try:
        assert is_own_faster(problem(), config) and is_own_faster(problem(), config)
    finally:
        remove()
    assert seen == [problem()]
    assert events == ["measuring product bfloat16 512x640 @ 640x768, strides (640, 1) (1, 640)"]
    seen.times = Seconds(2.0, 1.0)
    assert not is_own_faster(problem(m=256), config)
    assert is_own_faster(problem(), config)  # from the cache


def test_the_library_stays_where_nothing_is_measured(card, monkeypatch):
    seen, config = card
    assert not is_own_faster(problem(device=torch.device("cpu")), config)
    monkeypatch.setattr(product_choice, "_spent", product_choice.BUDGET + 1)
    assert not is_own_faster(problem(), config)
    assert not seen


@pytest.mark.parametrize("batch", [0, 6])
def test_the_bare_product_is_one_kernel_with_several_tiles(batch):
    program, kernels = bare_product(problem(batch=batch, device=torch.device("cpu")))
    (kernel,) = kernels.values()
    assert kernel.form == "dot" and not program.externs
    assert len(candidates(kernel)) > 5
    assert len(kernel.launches[0].grid) == (3 if batch else 2)


def test_what_is_small_by_rule():
    assert is_small(1, 32, 256, 256, torch.float32)
    assert not is_small(1, 4096, 4096, 4096, torch.bfloat16)
    assert not is_small(1, 8, 8, 8, torch.float64)
    assert not is_small(1, 0, 8, 8, torch.float32)
    assert not is_small(1, 8, 8, 4, torch.float32)
