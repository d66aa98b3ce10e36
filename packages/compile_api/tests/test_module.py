import copy
import gc
import inspect
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import lamina


class Net(nn.Module):
    registry: list = []

    def __init_subclass__(cls):
        Net.registry.append(cls)

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.steps = 0

    def forward(self, x, *, scale=1.0):
        self.steps += 1
        return self.norm(self.lin(x)) * scale

    def predict(self, x):
        return self(x).argmax(-1)

    @property
    def width(self):
        return self.lin.in_features


@pytest.fixture
def pair(layers):
    torch.manual_seed(0)
    net = Net()
    return net, lamina.compile(net)


X = torch.linspace(-1, 1, 12).reshape(4, 3)


def test_calls_go_through_capture_and_methods_reach_the_compiled_call(pair, layers):
    net, c = pair
    want = copy.deepcopy(net)(X, scale=2.0)
    assert torch.equal(c(X, scale=2.0), want)
    assert ("call", net) in layers.calls
    layers.calls.clear()
    c.predict(X)
    assert ("call", net) in layers.calls


def test_attributes_are_one(pair):
    net, c = pair
    c(X)
    assert net.steps == c.steps == 1
    c.steps = 7
    net.extra = "here"
    assert (net.steps, c.extra, c.width) == (7, "here", 3)
    del c.extra
    assert not hasattr(net, "extra")
    c.head = nn.Linear(2, 2)
    assert "head.weight" in dict(net.named_parameters())
    with pytest.raises(AttributeError, match="nothing"):
        _ = c.nothing


def test_it_is_an_instance_of_the_original_class_and_prints_like_it(pair):
    net, c = pair
    assert isinstance(c, Net) and isinstance(c, nn.Module)
    assert repr(c) == repr(net)
    assert inspect.signature(c.forward) == inspect.signature(net.forward)
    assert c._orig_mod is net
    assert Net.registry == []


def test_state_dict_both_ways_and_old_prefixes(pair):
    net, c = pair
    plain = Net()
    assert list(c.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(c.state_dict())
    old = {"_orig_mod." + k: v + 1 for k, v in plain.state_dict().items()}
    c.load_state_dict(old)
    assert torch.equal(net.lin.bias, plain.lin.bias + 1)
    parent = nn.Sequential(c)
    parent.load_state_dict({"0._orig_mod." + k: v for k, v in plain.state_dict().items()})
    assert torch.equal(net.lin.bias, plain.lin.bias)
    with pytest.raises(RuntimeError, match="Missing"):
        c.load_state_dict({})


def test_train_eval_to_half_requires_grad_apply(pair):
    net, c = pair
    assert c.eval() is c and not net.training and not net.norm.training
    net.train()
    assert c.training
    c.half()
    assert net.lin.weight.dtype == torch.float16
    c.to(torch.float32).requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    seen = []
    c.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "BatchNorm1d", "Net"]
    assert [n for n, _ in c.named_modules()] == [n for n, _ in net.named_modules()]


def test_hooks_on_either_run(pair):
    net, c = pair
    seen = []
    c.register_forward_hook(lambda m, i, o: seen.append("compiled"))
    handle = net.register_forward_pre_hook(lambda m, i: seen.append("original"))
    c(X)
    handle.remove()
    c(X)
    assert seen == ["original", "compiled", "compiled"]


def test_containers_iterate_index_and_have_a_length(layers):
    seq = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    c = lamina.compile(seq)
    assert len(c) == 2 and c[0] is seq[0] and list(c) == list(seq) and isinstance(c[:1], nn.Sequential)
    table = lamina.compile(nn.ModuleDict({"a": nn.ReLU()}))
    assert "a" in table and list(table.keys()) == ["a"]


def test_copies_own_their_weights(pair):
    net, c = pair
    want = c(X).detach()
    d = copy.deepcopy(c)
    assert type(d) is type(c) and d._orig_mod is not net
    with torch.no_grad():
        d.lin.weight.zero_()
    assert torch.equal(c(X), want) or net.norm.training
    assert float(net.lin.weight.abs().sum()) > 0
    e = copy.copy(c)
    assert e.lin is c.lin


def test_pickle_and_save_keep_class_weights_and_options(layers):
    net = Net().eval()
    c = lamina.compile(net, mode="max-autotune", dynamic=True)
    want = c(X)
    again = pickle.loads(pickle.dumps(c))
    assert torch.equal(again(X), want) and type(again._orig_mod) is Net
    assert again._lamina_state.settings == c._lamina_state.settings
    buffer = io.BytesIO()
    torch.save(c, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(X), want)


def test_inside_another_module_it_is_an_ordinary_child(pair):
    net, c = pair

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = c

        def forward(self, x):
            return self.inner(x)

    outer = Outer()
    assert set(outer.state_dict()) == {"inner." + k for k in net.state_dict()}
    outer(X).sum().backward()
    assert net.lin.weight.grad is not None


def test_a_patched_forward_is_used(pair):
    net, c = pair
    net.forward = lambda x: x * 0 + 5
    assert float(c(X).mean()) == 5.0


def test_everything_is_freed(layers):
    net = Net()
    c = lamina.compile(net)
    c(X).sum().backward()
    layers.calls.clear()
    refs = weakref.ref(net), weakref.ref(net.lin.weight)
    del net, c
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_the_twin_survives_the_original_name(layers):
    c = lamina.compile(Net())
    gc.collect()
    assert c(X).shape == (4, 2) and c.lin.in_features == 3


def test_compiling_a_compiled_module_starts_from_the_original(pair):
    net, c = pair
    assert lamina.compile(c, mode="max-autotune")._orig_mod is net


def test_an_object_that_its_class_makes_is_plain(layers):
    whole = lamina.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)))
    part = whole[:2]
    want = torch.relu(whole[0](X))
    assert torch.equal(part(X), want) and torch.equal(part.forward(X), want)
    for again in (copy.deepcopy(part), copy.copy(part), pickle.loads(pickle.dumps(part)), lamina.compile(part)):
        assert torch.equal(again(X), want)
    assert part._orig_mod[0] is whole[0] and len(part) == 2
    part.extra = nn.Identity()
    assert list(dict(part.named_children())) == ["0", "1", "extra"]


def test_a_custom_metaclass_and_slots(layers):
    made = []

    class Meta(type):
        def __new__(mcs, name, bases, ns):
            made.append(name)
            return super().__new__(mcs, name, bases, ns)

    class Slotted(nn.Module, metaclass=Meta):
        def forward(self, x):
            return x + 1

    c = lamina.compile(Slotted())
    assert float(c(torch.zeros(1))) == 1.0 and made == ["Slotted"] and type(type(c)) is Meta


def test_a_subclass_of_a_compiled_modules_class_keeps_its_overrides(layers):
    class Base(torch.nn.Module):
        def helper(self, x):
            return x + 1

        def forward(self, x):
            return self.helper(x)

    class Derived(type(lamina.compile(Base()))):
        def helper(self, x):
            return x + 2

        def forward(self, x):
            return super().forward(x) * 10

    assert float(Derived()(torch.zeros(()))) == 20
    with pytest.raises(lamina.OptionError, match="derive"):
        lamina.compile(Derived())
