"""Repeated structure: what becomes a region, what must not, and that regions change nothing but the time."""

import operator

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F

import lamina_aot_autograd as aot
from lamina_aot_autograd import regions
from lamina_aot_autograd.observe import on_event
from lamina_aot_autograd.regions import Region, roll_repeats

WIDTH = 8


class _Record(fx.Interpreter):
    def run_node(self, n):
        value = super().run_node(n)
        n.meta["val"] = value
        return value


def captured(fn, inputs):
    """A captured graph with the metadata that a front end gives."""
    gm = fx.symbolic_trace(fn)
    out = gm.graph.output_node()
    if not isinstance(out.args[0], tuple):
        out.args = ((out.args[0],),)
    with torch.random.fork_rng():
        _Record(gm).run(*[t.clone().requires_grad_(t.requires_grad) for t in inputs])
    return gm


def weights(layers, seed=0, **more):
    g = torch.Generator().manual_seed(seed)
    make = lambda *shape: (torch.randn(*shape, generator=g) / 3).requires_grad_()  # noqa: E731
    return [make(4, WIDTH), *(t for _ in range(layers) for t in (make(WIDTH, WIDTH), make(WIDTH), make(WIDTH)))]


def layer(x, w, b, g):
    y = F.gelu(F.linear(F.layer_norm(x, (WIDTH,), g), w, b))
    y = torch.tanh(y * 2.0) + torch.sin(y).exp()
    return x + y * 0.5


def stack(count, body=layer):
    """x, then three parameters a layer."""
    names = ", ".join(["x", *(f"{n}{k}" for k in range(count) for n in "wbg")])
    lines = [f"def fn({names}):"] + [f"    x = body(x, w{k}, b{k}, g{k})" for k in range(count)] + ["    return (x,)"]
    scope = {"body": body}
    exec("\n".join(lines), scope)
    return scope["fn"]


def region_calls(gm):
    return [n for n in gm.graph.nodes if isinstance(n.target, Region)]


def run(gm, inputs, rolled, seed=3, **options):
    """(outputs, gradients, joint graph), with or without regions."""
    inputs = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    call = aot.aot_compile(gm, inputs, regions=rolled, **options)
    torch.manual_seed(seed)
    out = call(*inputs)
    loss = sum((o.sin() * (k + 1)).sum() for k, o in enumerate(out) if o.requires_grad)
    wanted = [t for t in inputs if t.requires_grad]
    grads = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else ()
    return out, grads, call.joint.gm


def check_same(fn, inputs, expect=None, **options):
    """Rolled and plain agree; `expect`: number of calls in the rolled forward (None: at least one)."""
    gm = captured(fn, inputs)
    plain, rolled = run(gm, inputs, False, **options), run(gm, inputs, True, **options)
    for got, want in zip((*rolled[0], *rolled[1]), (*plain[0], *plain[1]), strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
            assert got.stride() == want.stride()
            assert got.dtype is want.dtype
    calls = [n for n in region_calls(rolled[2]) if n.meta["partition"] == "forward"]
    assert not region_calls(plain[2])
    assert calls if expect is None else len(calls) == expect
    return rolled[2]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(regions, "FEWEST_NODES", 20)


def test_equal_layers_are_traced_once():
    joint = check_same(stack(6), weights(6))
    calls = region_calls(joint)
    forward = {n.target for n in calls if n.meta["partition"] == "forward"}
    backward = {n.target for n in calls if n.meta["partition"] == "backward"}
    assert len(forward) == 1 and len(backward) == 1
    assert len(calls) >= 10
    aot.check_graph(joint)


def test_the_work_is_that_of_one_layer():
    few, many = (check_same(stack(n), weights(n)) for n in (5, 15))
    distinct = lambda gm: len({n.target for n in region_calls(gm)})  # noqa: E731
    assert distinct(few) == distinct(many)


def test_rolled_graph_prints_as_python_and_runs():
    inputs = weights(6)
    gm = captured(stack(6), inputs)
    rolled = roll_repeats(gm)
    assert "region_0(" in rolled.code
    torch.testing.assert_close(rolled(*inputs)[0], gm(*inputs)[0])


@pytest.mark.parametrize("policy", ["default", "min_cut", "save_everything"])
def test_policies(policy):
    check_same(stack(6), weights(6), partitioner=policy)


def test_inference():
    inputs = [t.detach() for t in weights(6)]
    joint = check_same(stack(6), inputs)
    assert all(n.meta["partition"] == "forward" for n in region_calls(joint))


def test_random_stream_is_that_of_plain_tracing():
    check_same(stack(6, lambda x, w, b, g: F.dropout(layer(x, w, b, g), 0.4)), weights(6))


def test_a_constant_that_differs_separates():
    def body(x, w, b, g, slope=[0]):  # noqa: B006
        slope[0] += 1
        return layer(x, w, b, g) + (0.25 if slope[0] % 7 == 3 else 0.5)

    check_same(stack(7, body), weights(7))


@pytest.mark.parametrize("pair", [(1, True), (0.0, -0.0), (2, 2.0)])
def test_constants_that_compare_equal_are_not_equal(pair):
    values = iter(pair * 100)

    def body(x, w, b, g):
        return layer(x, w, b, g) * next(values)

    gm = captured(stack(6, body), weights(6))
    rolled = roll_repeats(gm)
    for node in region_calls(rolled) if rolled else ():
        # only two layers together can repeat
        constants = [n.args[1] for n in node.target.graph_module.graph.nodes if n.target is operator.mul]
        assert {repr(c) for c in constants} >= {repr(pair[0]), repr(pair[1])}


def test_a_frozen_layer_is_another_kind():
    inputs = weights(8)
    for k in (10, 11, 12):
        inputs[k].requires_grad_(False)
    check_same(stack(8), inputs)


def test_first_layer_without_gradient():
    inputs = weights(6)
    inputs[0].requires_grad_(False)
    check_same(stack(6), inputs)


def test_tied_weights_and_shared_mask():
    def fn(x, m, w, b, g):
        mask = m.sigmoid()
        for _ in range(6):
            x = layer(x, w, b, g) * mask
        return (x,)

    check_same(fn, [*weights(1)[:1], torch.randn(4, WIDTH), *weights(1)[1:]])


def test_intermediate_outputs_and_unused_gradients():
    def fn(x, *p):
        states = []
        for k in range(6):
            x = layer(x, *p[3 * k : 3 * k + 3])
            states.append(x)
        return (states[2], states[4].detach(), x)

    names = [f"p{k}" for k in range(18)]
    scope = {"fn": fn}
    exec(f"def flat(x, {', '.join(names)}):\n    return fn(x, {', '.join(names)})", scope)
    check_same(scope["flat"], weights(6))


@pytest.mark.parametrize("rolled", [True, False])
def test_a_gradient_that_only_an_unused_result_gives_is_none(rolled):
    def body(x, s, w, b, g):
        return layer(x, w, b, None), torch.tanh(g * 2.0).exp() + s

    def fn(x, s, *p):
        results = []
        for k in range(6):
            x, s_next = body(x, s, *p[3 * k : 3 * k + 3])
            results.append(s_next)
        return (x, *results)

    names = [f"p{k}" for k in range(18)]
    scope = {"fn": fn}
    exec(f"def flat(x, s, {', '.join(names)}):\n    return fn(x, s, {', '.join(names)})", scope)
    start = weights(6)
    inputs = [start[0], torch.randn(WIDTH), *start[1:]]
    gm = captured(scope["flat"], inputs)
    assert region_calls(roll_repeats(gm, rolled))
    mine = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    out = aot.aot_compile(gm, mine, regions=rolled)(*mine)
    (out[0].sum() + out[2].sum()).backward()  # the second results of the other layers have no gradient
    eager = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    want = scope["flat"](*eager)
    (want[0].sum() + want[2].sum()).backward()
    assert [t.grad is None for t in mine] == [t.grad is None for t in eager]


def test_a_write_to_what_comes_from_outside_is_not_rolled():
    def body(x, w, b, g):
        return x.mul_(0.5) + layer(x, w, b, g)

    inputs = [weights(6)[0].detach(), *weights(6)[1:]]
    gm = captured(stack(6, body), inputs)
    rolled = roll_repeats(gm)
    for node in region_calls(rolled) if rolled else ():
        inner = node.target.graph_module.graph
        written = [n.args[0] for n in inner.nodes if n.target == "mul_"]
        assert all(n.op != "placeholder" for n in written)


def test_writes_inside_a_layer():
    check_same(stack(6, lambda x, w, b, g: layer(x, w, b, g).mul_(0.5).add_(1)), weights(6))


def test_views_across_layers_fall_back_or_agree():
    def body(x, w, b, g):
        return layer(x, w, b, g).t().t()

    gm = captured(stack(6, body), weights(6))
    plain, rolled = run(gm, weights(6), False), run(gm, weights(6), True)
    torch.testing.assert_close(rolled[0][0], plain[0][0])


def test_a_region_that_cannot_be_is_told(monkeypatch):
    seen = []
    remove = on_event(lambda e: seen.append(e) if e.name == "fallback" else None)
    monkeypatch.setattr(regions, "_STATEFUL", set())

    def body(x, w, b, g):
        y = layer(x, w, b, g)
        return y.view(-1).view(4, WIDTH)

    try:
        gm = captured(stack(6, body), weights(6))
        monkeypatch.setattr(regions._Finder, "_score", lambda self, start, period: (-start, 0))
        plain, rolled = run(gm, weights(6), False), run(gm, weights(6), True)
    finally:
        remove()
    torch.testing.assert_close(rolled[0][0], plain[0][0])


def test_modes_inside_are_not_rolled():
    def body(x, w, b, g):
        torch._C._set_grad_enabled(False)
        y = x * 2
        torch._C._set_grad_enabled(True)
        return layer(x, w, b, g) + y

    graph = fx.symbolic_trace(stack(6)).graph
    for node in list(graph.nodes):
        if node.target is F.gelu:
            with graph.inserting_before(node):
                graph.call_function(torch._C._set_grad_enabled, (True,))
    gm = fx.GraphModule({}, graph)
    _Record(gm).run(*weights(6))
    assert roll_repeats(gm) is None


def test_autocast_outside_is_part_of_the_kind():
    inputs = weights(6)
    gm = captured(stack(6), inputs)
    results = {}
    for rolled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            call = aot.aot_compile(gm, inputs, regions=rolled)
            results[rolled] = call(*inputs)[0]
    assert results[True].dtype is results[False].dtype
    torch.testing.assert_close(results[True], results[False])


def test_no_grad_at_the_call():
    inputs = weights(6)
    gm = captured(stack(6), inputs)
    with torch.no_grad():
        call = aot.aot_compile(gm, inputs, regions=True)
        out = call(*inputs)[0]
    assert not out.requires_grad
    assert region_calls(call.joint.gm)


def test_gradient_of_a_gradient():
    inputs = weights(6)
    gm = captured(stack(6), inputs)
    results = []
    for rolled in (False, True):
        mine = [t.detach().clone().requires_grad_() for t in inputs]
        out = aot.aot_compile(gm, mine, regions=rolled)(*mine)[0]
        (first,) = torch.autograd.grad(out.pow(3).sum(), mine[:1], create_graph=True)
        results.append(torch.autograd.grad(first.pow(2).sum(), mine))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_a_later_write_to_a_saved_value_raises_as_without_regions():
    inputs = weights(6)
    gm = captured(stack(6), inputs)
    mine = [t.detach().clone().requires_grad_() for t in inputs]
    out = aot.aot_compile(gm, mine, regions=True)(*mine)[0]
    with torch.no_grad():
        mine[4].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_config_and_budget_switch_it_off():
    inputs = weights(6)
    gm = captured(stack(6), inputs)
    with aot.config.patch(regions=False):
        assert not region_calls(aot.aot_compile(gm, inputs, regions=True).joint.gm)
    assert not region_calls(aot.aot_compile(gm, inputs, regions=True, memory_budget=10_000.0).joint.gm)
    assert not region_calls(aot.aot_compile(gm, inputs).joint.gm)


def test_two_runs_and_what_lies_between():
    def fn(x, v, *p):
        for k in range(5):
            x = layer(x, *p[3 * k : 3 * k + 3])
        x = torch.cumsum(x, 0) * v
        for k in range(5, 10):
            x = layer(x.abs(), *p[3 * k : 3 * k + 3])
        return (x,)

    names = [f"p{k}" for k in range(30)]
    scope = {"fn": fn}
    exec(f"def flat(x, v, {', '.join(names)}):\n    return fn(x, v, {', '.join(names)})", scope)
    inputs = weights(10)
    joint = check_same(scope["flat"], [inputs[0], torch.randn(WIDTH), *inputs[1:]])
    assert len({n.target for n in region_calls(joint)}) == 4


def copied_calls(gm, with_calls=True):
    rolled = roll_repeats(gm, with_calls)
    return [n for n in region_calls(rolled) if n.target.is_copied] if rolled else []


def nodes_by_target(gm):
    return sorted(str(n.target) for n in gm.graph.nodes if n.op == "call_function")


def conv_stack(layers, training):
    """Equal blocks of convolution, batch norm and relu; (module captured by name, inputs)."""
    names = [f"{n}{k}" for k in range(layers) for n in ("w", "g", "b", "m", "v", "c")]

    def body(x, w, g, b, m, v, c):
        c.add_(1)
        y = F.batch_norm(F.conv2d(x, w, None, 1, 1), m, v, g, b, training, 0.1)
        return (F.relu(y * 1.5) + 0.25).mul_(0.5) + x

    lines = [f"def fn(x, {', '.join(names)}):"]
    for k in range(layers):
        lines.append(f"    x = body(x, w{k}, g{k}, b{k}, m{k}, v{k}, c{k})")
    scope = {"body": body}
    exec("\n".join([*lines, "    return (x,)"]), scope)
    g = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 3, 5, 5, generator=g).requires_grad_()]
    for _ in range(layers):
        inputs += [
            (torch.randn(3, 3, 3, 3, generator=g) / 5).requires_grad_(), torch.rand(3, generator=g).requires_grad_(),
            torch.rand(3, generator=g).requires_grad_(), torch.zeros(3), torch.ones(3), torch.tensor(0),
        ]  # fmt: skip
    return scope["fn"], inputs


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_convolutions_and_running_statistics_are_copied(training, rolled):
    fn, inputs = conv_stack(6, training)
    gm = captured(fn, [t.clone().detach().requires_grad_(t.requires_grad) for t in inputs])
    assert len(copied_calls(gm)) == 6
    results = []
    for on in (True, False):
        mine = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
        with aot.config.patch(regions=on):
            call = aot.aot_compile(gm, mine, regions=rolled)
        out = call(*mine)[0]
        out.sin().sum().backward()
        results.append((out, [t.grad for t in mine], mine, [t._version for t in mine], call.joint.gm))
    (out, grads, state, versions, joint), (plain_out, plain_grads, plain_state, plain_versions, plain) = results
    torch.testing.assert_close(out, plain_out)
    for got, want in zip((*grads, *state), (*plain_grads, *plain_state), strict=True):
        if want is not None:
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
    assert versions == plain_versions
    assert not region_calls(joint)
    assert nodes_by_target(joint) == nodes_by_target(plain)
    aot.check_graph(joint)


def test_a_copied_region_is_traced_once(monkeypatch):
    from lamina_aot_autograd.trace import region_calls as calls

    made = []
    monkeypatch.setattr(calls, "Copied", lambda joint: made.append(joint) or copies.Copied(joint))
    from lamina_aot_autograd.trace import region_copies as copies

    fn, inputs = conv_stack(8, True)
    gm = captured(fn, [t.clone().detach().requires_grad_(t.requires_grad) for t in inputs])
    aot.aot_compile(gm, inputs)
    assert len(made) == 1


def test_a_copy_names_the_line_of_its_own_layer():
    fn, inputs = conv_stack(6, True)
    gm = captured(fn, [t.clone().detach().requires_grad_(t.requires_grad) for t in inputs])
    convolutions = [n for n in gm.graph.nodes if n.target is F.conv2d]
    for k, node in enumerate(convolutions):
        node.meta["stack_trace"] = f"layer {k}"
    joint = aot.aot_compile(gm, inputs).joint.gm
    lines = [
        n.meta.get("stack_trace") for n in joint.graph.nodes
        if "convolution.default" in str(n.target) and n.meta["partition"] == "forward"
    ]  # fmt: skip
    assert lines == [f"layer {k}" for k in range(6)]


def test_running_statistics_shared_by_layers_are_written_in_turn():
    def fn(x, m, v, *ws):
        for w in ws:
            x = F.batch_norm(F.conv2d(x, w, None, 1, 1), m, v, None, None, True, 0.1).relu() * 1.5 + 0.25 + x
        return (x,)

    scope = {"fn": fn}
    exec(f"def flat(x, m, v, {', '.join(f'w{k}' for k in range(6))}):\n    return fn(x, m, v, "
         f"{', '.join(f'w{k}' for k in range(6))})", scope)  # fmt: skip
    g = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 3, 4, 4, generator=g).requires_grad_(), torch.zeros(3), torch.ones(3)]
    inputs += [torch.randn(3, 3, 3, 3, generator=g).requires_grad_() for _ in range(6)]
    gm = captured(scope["flat"], inputs)
    eager, mine = ([t.detach().clone().requires_grad_(t.requires_grad) for t in inputs] for _ in range(2))
    want = scope["flat"](*eager)[0]
    assert copied_calls(gm)
    got = aot.aot_compile(gm, mine)(*mine)[0]
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(mine[1:3], eager[1:3])
    assert [t._version for t in mine] == [t._version for t in eager]


def test_symbolic_sizes_are_copied():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    inputs = weights(6)
    gm = captured(stack(6), inputs)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes = [
        mode.from_tensor(t, symbolic_context=None if k == 0 else static_context(t)) for k, t in enumerate(inputs)
    ]
    with mode:
        _Record(gm).run(*fakes)
    assert len(copied_calls(gm)) >= 4
    call = aot.aot_compile(gm, inputs, regions=True)
    for rows in (4, 7):
        mine = [torch.randn(rows, WIDTH).requires_grad_(), *(t.detach().clone().requires_grad_() for t in inputs[1:])]
        eager = [t.detach().clone().requires_grad_() for t in mine]
        got, want = call(*mine)[0], stack(6)(*eager)[0]
        torch.testing.assert_close(got, want)
        got.sin().sum().backward()
        want.sin().sum().backward()
        torch.testing.assert_close([t.grad for t in mine], [t.grad for t in eager])
    assert not region_calls(call.joint.gm)


def static_context(t):
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    return StatelessSymbolicContext([DimDynamic.STATIC] * t.dim())
