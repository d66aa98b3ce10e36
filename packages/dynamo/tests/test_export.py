"""Exported programs: one graph, constraints, stored form."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import Dim


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x, scale=1.0):
        y = torch.relu(self.norm(self.conv(x)))
        return {"logits": self.head(y.mean((2, 3))) * scale, "parts": (x, 3)}


def test_module_round_trip_in_a_fresh_process(tmp_path):
    net = Net().eval()
    x = torch.randn(2, 1, 5, 5)
    program = lamina_dynamo.export(net, (x,))
    expected = net(x)
    result = program(x)
    assert (
        torch.allclose(result["logits"], expected["logits"], atol=1e-6)
        and result["parts"][0] is x
        and result["parts"][1] == 3
    )
    path = tmp_path / "net.zip"
    program.save(path)
    torch.save((x, expected["logits"].detach()), tmp_path / "data.pt")
    code = (
        "import torch, lamina_dynamo, sys; p = lamina_dynamo.load(sys.argv[1]); x, want = torch.load(sys.argv[2]);"
        "assert torch.allclose(p(x)['logits'], want, atol=1e-6)"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(tmp_path / "data.pt")], check=True)


def test_bad_inputs_are_named():
    program = lamina_dynamo.export(lambda x, y: x @ y, (torch.ones(2, 3), torch.ones(3, 2)))
    cases = {
        r"input y: shape\[1\] must be 2": (torch.ones(2, 3), torch.ones(3, 4)),
        "input x: dtype must be torch.float32": (torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 2)),
        "input x: 2 dimensions": (torch.ones(2), torch.ones(3, 2)),
        "input y must be a tensor": (torch.ones(2, 3), 1),
        "another structure": (torch.ones(2, 3),),
    }
    for text, args in cases.items():
        with pytest.raises(lamina_dynamo.ConstraintError, match=text):
            program(*args)


def test_dynamic_shapes(tmp_path):
    def f(x, y):
        return x + y.sum(0)

    program = lamina_dynamo.export(f, (torch.ones(4, 3), torch.ones(5, 3)), dynamic_shapes={"x": {0: Dim(2, 10)}})
    program.save(tmp_path / "p.zip")
    for p in (program, lamina_dynamo.load(tmp_path / "p.zip")):
        assert p(torch.ones(7, 3), torch.ones(5, 3)).shape == (7, 3)
        with pytest.raises(lamina_dynamo.ConstraintError, match=r"y: shape\[0\] must be 5"):
            p(torch.ones(7, 3), torch.ones(6, 3))
        with pytest.raises(lamina_dynamo.ConstraintError, match="x"):
            p(torch.ones(11, 3), torch.ones(5, 3))
    with pytest.raises(lamina_dynamo.ConstraintError, match="no argument"):
        lamina_dynamo.export(f, (torch.ones(4, 3), torch.ones(5, 3)), dynamic_shapes={"z": {0: Dim()}})


def test_structured_arguments():
    def f(pair, *, options):
        return pair[0] * options["k"], [pair[1]["a"] - 1]

    a, b, k = torch.ones(2), torch.ones(3), torch.full((2,), 4.0)
    program = lamina_dynamo.export(f, ((a, {"a": b}),), {"options": {"k": k}})
    first, (second,) = program((a, {"a": b}), options={"k": k})
    assert torch.equal(first, a * 4) and torch.equal(second, b - 1)


def test_graph_break_and_foreign_files_are_errors(tmp_path):
    def broken(x):
        if x.sum() > 0:
            return x + 1
        return x

    with pytest.raises(lamina_dynamo.GraphBreakError):
        lamina_dynamo.export(broken, (torch.ones(2),))
    (tmp_path / "x.zip").write_text("no archive")
    with pytest.raises(lamina_dynamo.ExportError, match="no exported program"):
        lamina_dynamo.load(tmp_path / "x.zip")


def test_a_stored_program_cannot_name_other_functions(tmp_path):
    import json
    import zipfile

    program = lamina_dynamo.export(lambda x: torch.sin(x), (torch.ones(2),))
    program.save(tmp_path / "p.zip")
    with zipfile.ZipFile(tmp_path / "p.zip") as archive:
        document, state = json.loads(archive.read("program.json")), archive.read("state.pt")
    for bad in (
        "os:system",
        "builtins:eval",
        "torch.serialization:os.system",
        "torch:nn.Module",
        "torch:load",
        "torch.hub:load",
    ):
        for node in document["nodes"]:
            if node["op"] == "call_function":
                node["target"] = bad
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
            archive.writestr("program.json", json.dumps(document))
            archive.writestr("state.pt", state)
        with pytest.raises(lamina_dynamo.ExportError):
            lamina_dynamo.load(tmp_path / "bad.zip")


def _branches(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a.sin(), (x,))


def _per_row(x):
    return torch.func.vmap(lambda row: torch.func.grad(lambda r: (r**3).sum())(row))(x)


def _without_gradients(x):
    with torch.inference_mode():
        y = x * 2
    return y, x + 1


@pytest.mark.parametrize("fn", [_branches, _per_row, _without_gradients])
def test_bodies_and_modes_are_stored(fn, tmp_path):
    x = torch.randn(3, 3)
    lamina_dynamo.export(fn, (x,)).save(tmp_path / "program")
    back = lamina_dynamo.load(tmp_path / "program")
    for y in (x, x.abs(), -x.abs()):
        want, got = fn(y), back(y)
        for a, b in zip(want if isinstance(want, tuple) else (want,), got if isinstance(got, tuple) else (got,)):
            assert torch.equal(a, b) and a.is_inference() == b.is_inference()


def test_numbers_of_the_result_vary_with_sizes(tmp_path):
    def f(x, flag=True):
        y = x * 2
        more = [x.shape[0] * x.shape[1] + 1, 7, 2.5, "text", flag]
        return {"y": y, "n": x.shape[0], "more": more, "h": x.shape[0] / 4}

    program = lamina_dynamo.export(f, (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim()}})
    program.save(tmp_path / "p")
    for p in (program, lamina_dynamo.load(tmp_path / "p")):
        for n in (3, 8):
            x = torch.randn(n, 4)
            got, want = p(x), f(x)
            assert torch.equal(got.pop("y"), want.pop("y")) and got == want
            assert all(type(a) is type(b) for a, b in zip(got["more"], want["more"]))
    assert sum(what == "constant" for what, _ in program.outputs) == 4
    fixed = lamina_dynamo.export(f, (torch.randn(3, 4),))
    assert not any(what == "number" for what, _ in fixed.outputs)


def test_a_program_prints_without_the_values_of_its_state():
    layer = torch.nn.Linear(3, 2)
    text = repr(lamina_dynamo.export(layer, (torch.randn(5, 3),), dynamic_shapes={0: {0: Dim()}}))
    assert "float32[any, 3]" in text and "weight: float32[2, 3]" in text and "linear" in text
    assert not any(f"{v:.4f}"[1:] in text for v in layer.weight.flatten().tolist())
