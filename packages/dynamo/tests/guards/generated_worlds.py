# ruff: noqa: E501
"""Random programs made of small readings of state, and what changes each of them: material for guard tests.

A *reading* is (statements that set it up, an expression over it, statements each of which changes what it says). A
program adds up a few readings; `N` in the text is a number of its own, so that the same reading may occur twice.
"""

from __future__ import annotations

import random

SETUP = """
import collections, collections.abc, contextlib, contextvars, dataclasses, enum, functools, math, numbers, operator, os, threading, types, typing, weakref
import numpy as np
import torch
"""

#: name -> (setup, expression, changes)
READINGS: dict[str, tuple[str, str, list[str]]] = {
    "global float": ("GN = 2.0", "GN", ["GN = 3.0", "GN = 2", "GN = -0.0", "GN = float('nan')", "GN = 0.0"]),
    "global int": ("GN = 2", "GN * 2", ["GN = 3", "GN = 2.0", "GN = True", "GN = -7", "GN = 10**20", "GN = 0"]),
    "global string": ("GN = 'abc'", "len(GN) + (GN == 'abc')", ["GN = 'abd'", "GN = 'abcd'", "GN = ''", "GN = b'abc'"]),
    "global none": ("GN = None", "1 if GN is None else 2", ["GN = 0", "GN = 'x'", "GN = torch.ones(3)"]),
    "global bool": ("GN = True", "3 if GN else 4", ["GN = False", "GN = 1", "GN = 0", "GN = []", "GN = [0]"]),
    "global deleted": ("GN = 2.0", "GN", ["del GN", "GN = 5.0"]),
    "builtin hidden": ("", "len('abN')", ["len = lambda s: 40", "len = max"]),
    "attribute": ("AN = types.SimpleNamespace(v=1.0)", "AN.v", ["AN.v = 2.0", "AN.v = 1", "AN = types.SimpleNamespace(v=5)", "del AN.v"]),
    "attribute appears": ("class KN: pass\noN = KN()", "getattr(oN, 'v', 4)", ["oN.v = 2", "KN.v = 3", "oN.v = torch.ones(3)"]),
    "hasattr": ("class KN: pass\noN = KN()", "1 if hasattr(oN, 'v') else 2", ["oN.v = 2", "KN.v = 3", "KN.__getattr__ = lambda s, n: 4"]),
    "class attribute": (
        "class BN:\n    v = 1.0\nclass KN(BN): pass\noN = KN()",
        "oN.v + KN.v",
        ["BN.v = 2.0", "KN.v = 3.0", "oN.v = 4.0", "oN = BN()", "BN.v = property(lambda s: 9)", "KN.__getattribute__ = lambda s, n: 8"],
    ),
    "method": (
        "class BN:\n    def m(self): return 1.0\nclass KN(BN): pass\noN = KN()",
        "oN.m()",
        ["BN.m = lambda s: 2.0", "KN.m = lambda s: 3.0", "oN.m = lambda: 4.0", "BN.m.__code__ = (lambda self: 6.0).__code__", "oN.__class__ = type('Q', (BN,), {'m': lambda s: 11})"],
    ),
    "class changed": (
        "class PN:\n    def m(self): return 1\nclass QN:\n    def m(self): return 2\noN = PN()",
        "oN.m() + isinstance(oN, QN)",
        ["oN.__class__ = QN", "oN = QN()", "QN = PN"],
    ),
    "property": (
        "class KN:\n    def __init__(self): self.w = 2.0\n    @property\n    def v(self): return self.w\noN = KN()",
        "oN.v",
        ["oN.w = 3.0", "KN.v = 5.0", "KN.v = property(lambda s: s.w + 1)", "oN.__dict__['v'] = 9.0"],
    ),
    "descriptor": (
        "class DN:\n    k = 1.0\n    def __get__(self, o, t): return self.k\nclass KN:\n    v = DN()\noN = KN()",
        "oN.v",
        ["DN.k = 2.0", "KN.__dict__['v'].k = 3.0", "oN.__dict__['v'] = 4.0", "DN.__set__ = lambda *a: None\noN.__dict__['v'] = 6.0"],
    ),
    "getattr hook": (
        "class KN:\n    k = 1.0\n    def __getattr__(self, n): return len(n) * self.k\noN = KN()",
        "oN.abc",
        ["oN.abc = 9.0", "KN.abc = 8.0", "KN.k = 5.0", "KN.__getattr__ = lambda s, n: 7.0"],
    ),
    "slots": ("class KN:\n    __slots__ = ('v', 'w')\noN = KN()\noN.v = 1.0", "oN.v + (2 if hasattr(oN, 'w') else 3)", ["oN.v = 2.0", "oN.w = 1", "oN.v = 4"]),
    "dict value": ("dN = {'a': 1.0, 'b': 2}", "dN['a'] + dN['b']", ["dN['a'] = 2.0", "dN['b'] = 2.5", "dN = {'b': 5, 'a': 6}", "dN['b'] = True"]),
    "dict keys": ("dN = {'a': 1.0, 'b': 2.0}", "sum(i * len(k) * v for i, (k, v) in enumerate(dN.items()))", ["dN['cc'] = 4", "del dN['a']", "dN['a'] = dN.pop('a')", "dN.clear()", "dN.update(b=7)"]),
    "dict in": ("dN = {1: 2}", "(3 if 1 in dN else 4) + dN.get('z', 5) + len(dN)", ["dN['z'] = 1", "del dN[1]", "dN[1.0] = 7", "dN[True] = 8"]),
    "dict subclass": (
        "class KN(dict):\n    def __missing__(self, k): return 4.0\noN = KN(a=1.0)",
        "oN['a'] + oN['q']",
        ["oN['q'] = 2.0", "KN.__missing__ = lambda s, k: 5.0", "oN['a'] = 3", "KN.__getitem__ = lambda s, k: 1.5"],
    ),
    "ordered dict": ("oN = collections.OrderedDict(a=1.0, b=2.0)", "next(iter(oN.values())) * len(oN)", ["oN.move_to_end('a')", "oN['c'] = 4", "oN.popitem(last=False)"]),
    "default dict": ("oN = collections.defaultdict(lambda: 3.0, a=1.0)", "oN['a'] + oN['zN']", ["oN['a'] = 2.0", "oN.default_factory = lambda: 4.0", "oN.pop('zN', 0)", "oN.default_factory = int\noN.pop('zN', 0)"]),
    "counter": ("oN = collections.Counter('aab')", "oN['a'] + oN['q'] + oN.most_common(1)[0][1]", ["oN['q'] += 2", "oN.update('aaab')", "del oN['a']"]),
    "chain map": ("oN = collections.ChainMap({'a': 1.0}, {'a': 5.0, 'b': 2.0})", "oN['a'] + oN['b']", ["oN['a'] = 3.0", "del oN['a']", "oN.maps[1]['b'] = 4.0", "oN.maps.reverse()"]),
    "list": ("lN = [1.0, 2.0, 3]", "sum(lN) + lN[0] * len(lN)", ["lN.append(4)", "lN[0] = 7.0", "lN.pop()", "lN.reverse()", "lN = (1, 2)", "lN[2] = 3.0"]),
    "list nested": ("lN = [[1.0], [2.0, [3.0]]]", "lN[1][1][0] + len(lN[0])", ["lN[1][1][0] = 4.0", "lN[0].append(1)", "lN[1][1] = (8.0,)", "lN[1] = lN[0] + [[6.0]]"]),
    "list aliased": ("lN = [1.0]\nmN = lN", "(1 if lN is mN else 2) + mN[0]", ["mN = [1.0]", "lN[0] = 3.0", "lN = [1.0]"]),
    "list of functions": ("lN = [abs, lambda v: v * 2]", "sum(g(-3.0) for g in lN)", ["lN.reverse()", "lN[0] = lambda v: 10.0", "lN.append(math.floor)"]),
    "tuple": ("tN = (1.0, 'a', None)", "tN[0] + len(tN[1])", ["tN = (2.0, 'a', None)", "tN = (1.0, 'ab', None)", "tN = [1.0, 'a']"]),
    "set": ("sN = {1, 2}", "len(sN) + (1 if 2 in sN else 5) + sum(sorted(sN))", ["sN.add(7)", "sN.discard(2)", "sN = frozenset(sN)", "sN.clear()"]),
    "named tuple": ("PN = collections.namedtuple('PN', 'a b')\noN = PN(1.0, 2)", "oN.a * oN.b + oN[0]", ["oN = PN(2.0, 2)", "oN = oN._replace(b=5)", "PN.a = property(lambda s: 9.0)"]),
    "dataclass": ("@dataclasses.dataclass\nclass KN:\n    a: float = 1.0\n    b: object = None\noN = KN()", "oN.a + (3 if oN.b is None else 4) + (oN == KN())", ["oN.a = 2.0", "oN.b = 7", "KN.a = 3.0", "oN = KN(5.0, oN)"]),
    "enum": ("class EN(enum.Enum):\n    A = 1\n    B = 2\noN = EN.A", "oN.value + (3 if oN is EN.A else 4)", ["oN = EN.B", "oN = 'x' and EN.B", "EN.A._value_ = 7"]),
    "flag": ("class EN(enum.IntFlag):\n    A = 1\n    B = 2\noN = EN.A", "int(oN) + bool(oN & EN.B)", ["oN = EN.A | EN.B", "oN = EN.B", "oN = EN(0)"]),
    "function default": ("def fN(k=1.0, *, w=2.0): return k + w", "fN() + fN(3)", ["fN.__defaults__ = (5.0,)", "fN.__kwdefaults__ = {'w': 7.0}", "fN = lambda k=0: k", "fN.__code__ = (lambda k=1.0, *, w=2.0: k * w).__code__"]),
    "function attribute": ("def fN(): return 1.0\nfN.k = 2.0", "fN() + fN.k", ["fN.k = 3.0", "fN.__dict__['k'] = 4.0", "fN.k = fN"]),
    "closure": (
        "def mkN():\n    a, b = 1.0, [2.0]\n    def f(): return a + b[0]\n    def s(v):\n        nonlocal a\n        a = v\n    return f, s, b\nfN, sN, bN = mkN()",
        "fN()",
        ["sN(3.0)", "bN[0] = 5.0", "sN(1)", "fN, sN, bN = mkN()", "fN.__closure__[0].cell_contents = 9.0"],
    ),
    "global of helper": ("hN = 1.0\ndef fN(): return hN\ndef gN(): return fN() + 1", "gN()", ["hN = 2.0", "fN = lambda: 7", "gN = fN", "hN = None if False else 4"]),
    "partial": ("fN = functools.partial(lambda a, b=1.0, c=2.0: a * b + c, 3.0, c=1.0)", "fN()", ["fN = functools.partial(fN.func, 4.0)", "fN.keywords['c'] = 9.0", "fN = functools.partial(fN, b=5.0)", "fN.__setstate__((fN.func, (8.0,), {}, None))"]),
    "bound method kept": ("class KN:\n    k = 1.0\n    def m(self): return self.k\n    def n(self): return 20.0\noN = KN()\nfN = oN.m", "fN()", ["oN.k = 3.0", "fN = oN.n", "fN = KN().m", "fN = lambda: 2"]),
    "builtin method kept": ("lN = [1, 2, 1]\nfN = lN.count", "fN(1)", ["fN = lN.index", "lN.append(1)", "fN = [1].count", "fN = (1, 1, 1, 1).count"]),
    "callable object": ("class KN:\n    def __call__(self, v): return v * 2\noN = KN()", "oN(3.0)", ["KN.__call__ = lambda s, v: v", "oN = abs", "oN = KN().__call__", "oN.__call__ = lambda v: 99"]),
    "static and class methods": (
        "class KN:\n    k = 2.0\n    @staticmethod\n    def s(v): return v\n    @classmethod\n    def c(cls): return cls.k\noN = KN()",
        "oN.s(1.0) + oN.c() + KN.c()",
        ["KN.k = 3.0", "KN.s = staticmethod(lambda v: v + 5)", "KN.c = classmethod(lambda c: 7.0)", "oN.k = 11.0", "oN.c = lambda: 1"],
    ),
    "super": (
        "class BN:\n    def m(self): return 1.0\nclass KN(BN):\n    def m(self): return super().m() + 1\noN = KN()",
        "oN.m()",
        ["BN.m = lambda s: 5.0", "KN.__bases__ = (type('CN', (BN,), {'m': lambda s: 8.0}),)", "oN.__class__ = type('L', (KN,), {})"],
    ),
    "len and bool": ("class KN:\n    n = 2\n    def __len__(self): return self.n\noN = KN()", "(1 if oN else 2) + len(oN)", ["oN.n = 0", "KN.n = 3", "KN.__bool__ = lambda s: False", "KN.__len__ = lambda s: 6"]),
    "operators": ("class KN:\n    def __add__(self, o): return 2.0\n    def __eq__(self, o): return True\noN = KN()", "(oN + 1) + (5 if oN == 3 else 6)", ["KN.__add__ = lambda s, o: 4.0", "KN.__eq__ = lambda s, o: False", "del KN.__eq__", "oN = 3"]),
    "iteration": ("class KN:\n    r = (1.0, 2.0)\n    def __iter__(self): return iter(self.r)\noN = KN()", "sum(oN)", ["oN.r = (1.0,)", "KN.__iter__ = lambda s: iter([7.0])", "oN = [4.0]", "KN.r = [9]"]),
    "iterator position": ("lN = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]\niN = iter(lN)", "next(iN, 50.0)", ["iN = iter(lN)", "next(iN, 0)", "lN[4] = 100.0", "lN.clear()"]),
    "deque": ("oN = collections.deque([1.0, 2.0], maxlen=3)", "oN[0] + len(oN) + oN.maxlen", ["oN.append(4.0)", "oN.rotate()", "oN = collections.deque(oN, 5)", "oN.clear()\noN.append(1)"]),
    "range and slice": ("rN = range(4)\nsN = slice(0, 2)", "sum(rN) + len([1, 2, 3][sN])", ["rN = range(1, 4)", "sN = slice(1, 2)", "rN = [5]", "sN = slice(None)"]),
    "class of the type": ("class MN(type):\n    k = 1.0\nclass KN(metaclass=MN): pass", "KN.k", ["MN.k = 2.0", "KN.k = 3.0", "KN = MN('KN', (), {'k': 9.0})"]),
    "module attribute": ("modN = types.ModuleType('modN')\nmodN.v = 1.0", "modN.v + hasattr(modN, 'w')", ["modN.v = 2.0", "modN.w = 1", "modN = types.SimpleNamespace(v=5.0)", "modN.__getattr__ = lambda n: 3"]),
    "cached function": ("kN = [1.0]\n@functools.lru_cache(None)\ndef fN(a): return a + kN[0]", "fN(1)", ["kN[0] = 2.0", "fN.cache_clear()", "kN[0] = 3.0\nfN.cache_clear()", "fN = lambda a: 9"]),
    "cached property": ("class KN:\n    k = 1.0\n    @functools.cached_property\n    def v(self): return self.k\noN = KN()", "oN.v", ["oN.k = 2.0", "del oN.v", "oN.v = 8.0", "oN = KN()", "KN.k = 6.0\noN = KN()"]),
    "single dispatch": ("@functools.singledispatch\ndef fN(a): return 1.0\naN = 3", "fN(aN)", ["fN.register(int, lambda a: 2.0)", "aN = 'x'", "aN = True", "fN.register(object, lambda a: 6.0)", "aN = [1]\nfN.register(list, lambda a: 4.0)"]),
    "type check": ("vN = 1", "{int: 1, float: 2, bool: 3, str: 4}.get(type(vN), 9)", ["vN = 1.0", "vN = True", "vN = 'a'", "vN = None"]),
    "format": ("vN = 3", "len(f'{vN:>5}|{vN!r}')", ["vN = 123456", "vN = 'ab'", "vN = 3.0"]),
    "environment": ("os.environ['LT_N'] = '3'", "int(os.environ.get('LT_N', '7'))", ["os.environ['LT_N'] = '4'", "os.environ.pop('LT_N', None)"]),
    "thread local": ("oN = threading.local()\noN.v = 1.0", "oN.v + hasattr(oN, 'w')", ["oN.v = 2.0", "oN.w = 3", "oN = types.SimpleNamespace(v=7)"]),
    "context variable": ("cN = contextvars.ContextVar('cN', default=1.0)", "cN.get()", ["cN.set(2.0)", "cN.set(3)", "cN = contextvars.ContextVar('dN', default=4.0)"]),
    "weak reference": ("class KN: v = 1.0\noN = KN()\nwN = weakref.ref(oN)", "2.0 if wN() is None else wN().v", ["oN.v = 3.0", "oN = None", "oN = KN()\nwN = weakref.ref(oN)"]),
    "numpy scalar": ("vN = np.float32(1.5)", "float(vN) * 2", ["vN = np.float32(2.5)", "vN = np.float64(1.5)", "vN = np.int64(4)", "vN = 1.5"]),
    "numpy array": ("aN = np.array([1.0, 2.0, 3.0])", "torch.from_numpy(aN).float()", ["aN[0] = 5.0", "aN = np.array([4.0, 5.0, 6.0])", "aN = aN.astype('float32')", "aN = np.ones(1)"]),
    "tensor": ("tN = torch.ones(3)", "tN * 2", ["tN = torch.zeros(3)", "tN.add_(1)", "tN = torch.ones(1)", "tN = torch.ones(3, dtype=torch.float64)", "tN = torch.ones(3, requires_grad=True)", "tN = 4.0", "tN.requires_grad_()", "tN.resize_(1)"]),
    "tensor metadata": (
        "tN = torch.ones(2, 3)",
        "tN.shape[0] + tN.dim() + tN.stride()[0] + tN.is_contiguous() + (1 if tN.dtype is torch.float32 else 7) + tN.requires_grad + tN.is_leaf",
        ["tN = torch.ones(3, 2)", "tN = tN.t()", "tN = tN.double()", "tN = torch.ones(2, 3, 4)", "tN = torch.ones(2, 3, requires_grad=True)", "tN = torch.ones(2, 3, requires_grad=True) * 2"],
    ),
    "tensor aliased": ("tN = torch.ones(3)\nuN = tN", "tN.clone() + (1 if tN is uN else 2) * uN", ["uN = torch.ones(3)", "tN.mul_(2)", "uN = tN[:]"]),
    "tensor attribute": ("tN = torch.ones(3)\ntN.k = 2.0", "tN * tN.k", ["tN.k = 3.0", "tN = torch.ones(3)\ntN.k = 4.0", "tN.k = torch.ones(3)"]),
    "tensor gradient": ("tN = torch.ones(3, requires_grad=True)", "(1 if tN.grad is None else tN.grad * 2)", ["tN.grad = torch.ones(3)", "tN.grad = None", "tN.sum().backward()"]),
    "scalar tensor list": ("lN = [torch.tensor(1.0), torch.tensor(2.0)]", "sum(lN)", ["lN.append(torch.tensor(5.0))", "lN[0] = 4.0", "lN[1] = lN[0]"]),
    "dtype object": ("dN = torch.float64", "x.to(dN).sum()", ["dN = torch.float32", "dN = torch.int32", "dN = torch.float16"]),
    "default dtype": ("", "torch.zeros(3) + torch.tensor(1.5)", ["torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"]),
    "grad mode": ("", "1 if torch.is_grad_enabled() else 2", ["torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"]),
    "module": (
        "mN = torch.nn.Linear(3, 3)\ntorch.nn.init.ones_(mN.weight)\ntorch.nn.init.ones_(mN.bias)",
        "mN(x)",
        [
            "mN.weight = torch.nn.Parameter(torch.zeros(3, 3))", "mN.bias = None", "mN.weight.data.mul_(2)", "mN.requires_grad_(False)",
            "mN.register_forward_hook(lambda m, a, o: o * 2)", "mN.register_forward_pre_hook(lambda m, a: (a[0] + 1,))",
            "mN.forward = lambda v: v", "mN = torch.nn.Identity()", "mN.double().float()", "mN.__class__ = type('L', (torch.nn.Linear,), {'forward': lambda s, v: v * 5})",
        ],
    ),
    "module tree": (
        "mN = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.0), torch.nn.Tanh())",
        "mN(x) + len(mN)",
        ["mN[0] = torch.nn.GELU()", "mN.append(torch.nn.Sigmoid())", "del mN[0]", "mN.eval()", "mN[2] = mN[0]", "mN[0].inplace = False", "mN.insert(0, torch.nn.Tanh())"],
    ),
    "module buffers": (
        "class ModN(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('b', torch.ones(3))\n        self.k = 1.0\n"
        "        self.sub = torch.nn.ModuleDict({'a': torch.nn.Identity()})\n    def forward(self, v):\n        return self.sub['a'](v) + self.b * self.k + self.training + len(self.sub)\nmN = ModN()",
        "mN(x)",
        ["mN.b = torch.zeros(3)", "mN.k = 2.0", "mN.eval()", "mN.sub['a'] = torch.nn.Tanh()", "mN.sub['z'] = torch.nn.ReLU()", "mN.b = None if False else torch.ones(1)", "ModN.forward = lambda s, v: v * 3", "mN.b.add_(1)"],
    ),
    "batch norm": ("mN = torch.nn.BatchNorm1d(3)", "mN(x.expand(4, 3))", ["mN.eval()", "mN.train()", "mN.momentum = 0.5", "mN.running_mean.fill_(2.0)", "mN.track_running_stats = False", "mN.affine = False\nmN.weight = mN.bias = None"]),
    "argument": ("vN = 2.0", "helper(x, vN)", ["vN = 3.0", "helper = lambda a, b: a - b", "vN = torch.ones(3)", "helper.__defaults__ = (1,)"]),
    "try": ("dN = {}", "reads(dN)", ["dN['k'] = 1.0", "dN['k'] = 'text'", "reads = lambda d: 30", "dN['k'] = None"]),
    "match": ("vN = [1, 2]", "matches(vN)", ["vN = [1]", "vN = {'a': 5}", "vN = 7", "vN = (3, 4)", "vN = 'ab'"]),
    "getattr by name": ("nN = 'a'\noN = types.SimpleNamespace(a=1.0, b=2.0)", "getattr(oN, nN)", ["nN = 'b'", "oN.a = 4.0", "oN.__dict__.clear()\noN.a = 6.0"]),
    "sorted": ("lN = [3, 1, 2]\nkN = lambda v: v", "sorted(lN, key=kN)[0] + max(lN) * 2", ["kN = lambda v: -v", "lN.append(0)", "kN = None", "lN[1] = 10"]),
    "comparison of containers": ("aN = [1, (2, 3)]\nbN = [1, (2, 3)]", "1 if aN == bN else 2", ["aN[1] = (2, 4)", "bN.append(1)", "aN = bN", "aN[0] = 1.0"]),
    "complex": ("vN = 1 + 2j", "vN.real + vN.imag", ["vN = 2 + 2j", "vN = 5", "vN = 1.5"]),
    "bytes": ("vN = b'abc'", "vN[0] + len(vN)", ["vN = b'abd'", "vN = b'zbc'", "vN = [7]"]),
    "generic alias": ("tN = typing.List[int]", "len(typing.get_args(tN)) + (typing.get_origin(tN) is list)", ["tN = typing.Dict[int, str]", "tN = int"]),
    "instance dict": ("class KN: pass\noN = KN()\noN.a, oN.b = 1.0, 2.0", "sum(vars(oN).values()) + len(oN.__dict__)", ["oN.c = 4.0", "del oN.a", "oN.__dict__ = {'z': 9.0}", "oN.a = 7.0"]),
    "proxy": ("dN = {'a': 1.0}\npN = types.MappingProxyType(dN)", "pN['a'] + len(pN)", ["dN['a'] = 2.0", "dN['b'] = 1", "pN = {'a': 4.0}"]),
    "dict view": ("dN = {'a': 1.0}\nvN = dN.values()", "sum(vN) + len(vN)", ["dN['b'] = 2.0", "dN['a'] = 5.0", "vN = [1, 1]"]),
    "attribute goes": ("class KN:\n    v = 7.0\noN = types.SimpleNamespace(v=1.0, w=2)\npN = KN()\npN.v = 3.0", "(1 if hasattr(oN, 'v') else 2) + (3 if hasattr(pN, 'v') else 4) + (5 if getattr(oN, 'w', None) is None else 6)", ["del oN.v", "del pN.v", "oN.w = None", "del oN.w", "KN.v = property(lambda s: 1 / 0)", "KN.v = 9.0"]),
    "equality appears": ("class BN: pass\nclass KN(BN): pass\noN, pN = KN(), KN()", "(1 if oN == pN else 2) + (3 if oN != pN else 4) + (5 if oN in [pN] else 6) + [1, oN, pN].index(pN)", ["BN.__eq__ = lambda s, o: True", "KN.__eq__ = lambda s, o: False", "pN = oN", "KN.__ne__ = lambda s, o: True", "del BN.__eq__"]),
    "hash appears": ("class KN: pass\noN, pN = KN(), KN()\ndN = {oN: 1.0}", "dN.get(oN, 3.0) + dN.get(pN, 5.0) + len({oN, pN})", ["KN.__eq__ = lambda s, o: True\nKN.__hash__ = lambda s: 1\ndN = {oN: 2.0}", "dN[pN] = 4.0", "pN = oN"]),
    "iteration protocols": ("class KN:\n    def __getitem__(self, i):\n        if i > 2: raise IndexError\n        return i * 2.0\noN = KN()", "sum(oN) + (2.0 in oN)", ["KN.__iter__ = lambda s: iter([3.0])", "KN.__contains__ = lambda s, v: True", "KN.__getitem__ = lambda s, i: [1.0][i]", "KN.__len__ = lambda s: 0"]),
    "texts appear": ("class KN: pass\nKN.__repr__ = lambda s: 'ab'\noN = KN()", "len(str(oN)) + len(f'{oN}') + len(repr(oN)) + len('%s' % oN)", ["KN.__str__ = lambda s: 'abc'", "KN.__format__ = lambda s, p: 'abcde'", "KN.__repr__ = lambda s: 'q'", "del KN.__str__"]),
    "numbers appear": ("class KN:\n    def __index__(self): return 1\noN = KN()", "int(oN) + float(oN) + [5, 6, 7][oN] + range(9)[oN]", ["KN.__int__ = lambda s: 7", "KN.__float__ = lambda s: 2.5", "KN.__index__ = lambda s: 2", "KN.__trunc__ = lambda s: 4"]),
    "setting attributes": ("class KN: pass\noN = KN()\ndef fN(o):\n    o.v = 1.0\n    return o.v", "fN(oN)", ["KN.__setattr__ = lambda s, n, v: object.__setattr__(s, n, v + 1)", "KN.v = property(lambda s: 5.0, lambda s, v: None)", "KN.__slots__ = ()", "KN.__getattribute__ = lambda s, n: 4.0"]),
    "operators appear": ("class KN:\n    def __radd__(self, o): return 2.0\nclass LN(KN): pass\noN, pN = KN(), LN()", "(1 + oN) + (oN + pN) + sum([oN], 4.0)", ["KN.__add__ = lambda s, o: 3.0", "LN.__radd__ = lambda s, o: 9.0", "KN.__radd__ = lambda s, o: 5.0"]),
    "in-place operators": ("class KN:\n    def __init__(self, v): self.v = v\n    def __add__(self, o): return KN(self.v + o)\ndef fN(o):\n    o += 1.0\n    return o.v\noN = KN(2.0)", "fN(oN)", ["KN.__iadd__ = lambda s, o: KN(50.0)", "oN.v = 3.0", "KN.__add__ = lambda s, o: KN(7.0)"]),
    "with": ("class KN:\n    def __enter__(self): return 1.0\n    def __exit__(self, *a): return False\noN = KN()\ndef fN():\n    with oN as v:\n        return v", "fN()", ["KN.__enter__ = lambda s: 2.0", "KN.__exit__ = lambda s, *a: True", "oN.__enter__ = lambda: 3.0", "oN = contextlib.nullcontext(6.0)"]),
    "making objects": ("class BN: pass\nclass KN(BN):\n    v = 1.0", "KN().v", ["BN.__init__ = lambda s: setattr(s, 'v', 3.0)", "KN.__new__ = lambda c: types.SimpleNamespace(v=5.0)", "KN.v = 2.0", "KN.__init__ = lambda s: None"]),
    "instance checks": ("class MN(type): pass\nclass KN(metaclass=MN): pass\noN = KN()\npN = 3", "isinstance(oN, KN) + 2 * isinstance(pN, KN) + 4 * issubclass(int, KN)", ["MN.__instancecheck__ = lambda c, o: True", "MN.__subclasscheck__ = lambda c, o: True", "pN = oN", "oN = 4"]),
    "abstract registration": ("class KN(collections.abc.Sized): \n    def __len__(self): return 0\nclass LN: pass\noN = LN()", "isinstance(oN, collections.abc.Hashable) + 2 * isinstance(oN, collections.abc.Sized) + 4 * isinstance(oN, numbers.Number)", ["LN.__len__ = lambda s: 1", "LN.__hash__ = None", "numbers.Number.register(LN)", "oN = 3"]),
    "metaclass call": ("class MN(type): pass\nclass KN(metaclass=MN):\n    v = 1.0", "KN().v", ["MN.__call__ = lambda c: types.SimpleNamespace(v=4.0)", "KN.v = 2.0", "MN.v = property(lambda c: 5.0)"]),
    "descriptor appears": ("class DN: pass\nclass KN:\n    d = DN()\noN = KN()", "1 if isinstance(oN.d, DN) else oN.d", ["DN.__get__ = lambda s, o, t: 3.0", "oN.d = 4.0", "KN.d = 5.0"]),
    "base class attribute hidden": ("class AN:\n    v = 1.0\nclass BN(AN): pass\nclass CN(AN): pass\nclass KN(BN, CN): pass\noN = KN()", "oN.v + KN.v", ["CN.v = 2.0", "BN.v = 3.0", "AN.v = 4.0", "KN.__bases__ = (CN, BN)", "del CN.v"]),
    "keyword arguments": ("kN = {'b': 2.0}\ndef fN(a, **k): return a + sum(k.values()) + len(k)", "fN(1.0, **kN)", ["kN['c'] = 3.0", "kN.clear()", "fN = lambda a, b=9.0, c=1.0: a + b * c", "kN['b'] = 5.0"]),
    "positional arguments": ("aN = [1.0, 2.0]\ndef fN(*a): return sum(a) * len(a)", "fN(*aN)", ["aN.append(3.0)", "aN = (4.0,)", "fN = lambda *a: 7.0", "fN = max"]),
    "generator function": ("kN = [1.0, 2.0]\ndef gN():\n    for v in kN:\n        yield v * 2", "sum(gN())", ["kN.append(3.0)", "kN[0] = 5.0", "gN = lambda: [1.0]", "kN = {7.0: 1}"]),
    "recursion": ("kN = 1.0\ndef fN(n): return kN if n == 0 else fN(n - 1) + 1", "fN(3)", ["kN = 2.0", "fN.__code__ = (lambda n: 30.0).__code__", "fN = lambda n: n"]),
    "decorated": ("kN = 2.0\ndef dN(f):\n    @functools.wraps(f)\n    def w(*a): return f(*a) * kN\n    return w\n@dN\ndef fN(v): return v + 1", "fN(1.0)", ["kN = 3.0", "fN = fN.__wrapped__", "fN = dN(fN)", "fN.__wrapped__.__code__ = (lambda v: v).__code__"]),
    "module function replaced": ("modN = types.ModuleType('modN')\nexec('k = 2.0\\ndef f(v): return v * k', modN.__dict__)", "modN.f(3.0)", ["modN.k = 5.0", "modN.f = lambda v: v", "modN.__dict__['k'] = 7.0"]),
    "torch function replaced": ("FN = torch.nn.functional", "FN.relu(x).sum()", ["FN = types.SimpleNamespace(relu=lambda v: v)", "FN = torch"]),
    "parameter list": ("pN = torch.nn.ParameterList([torch.ones(3), torch.ones(3)])", "sum(p.sum() for p in pN)", ["pN.append(torch.ones(3))", "pN[0] = torch.zeros(3)", "pN[1].data.add_(1)"]),
    "shared module": ("aN = torch.nn.Linear(3, 3)\ntorch.nn.init.ones_(aN.weight)\ntorch.nn.init.ones_(aN.bias)\nbN = torch.nn.Sequential(aN, aN)", "bN(x)", ["bN[1] = torch.nn.Tanh()", "aN.weight.data.mul_(0.5)", "aN.bias = None", "aN.weight.requires_grad_(False)"]),
    "autocast": ("", "1 if torch.is_autocast_enabled('cpu') else 2", ["torch.set_autocast_enabled('cpu', True)", "torch.set_autocast_enabled('cpu', False)"]),
    "deterministic": ("", "1 if torch.are_deterministic_algorithms_enabled() else 2", ["torch.use_deterministic_algorithms(True)", "torch.use_deterministic_algorithms(False)"]),
    "string key by attribute": ("oN = types.SimpleNamespace(k='a')\ndN = {'a': 1.0, 'b': 2.0}", "dN[oN.k]", ["oN.k = 'b'", "dN['a'] = 5.0", "del dN['b']\noN.k = 'a'"]),
    "user mapping": ("class KN(collections.UserDict): pass\noN = KN(a=1.0)", "oN['a'] + len(oN) + ('b' in oN)", ["oN['b'] = 3.0", "oN.data = {'a': 8.0}", "KN.__missing__ = lambda s, k: 1", "KN.__contains__ = lambda s, k: True"]),
    "tuple subclass": ("class KN(tuple):\n    def total(self): return sum(self)\noN = KN((1.0, 2.0))", "oN.total() + len(oN)", ["oN = KN((3.0,))", "KN.__iter__ = lambda s: iter([9.0])", "KN.__len__ = lambda s: 5", "KN.total = lambda s: 0"]),
    "int subclass": ("class KN(int):\n    k = 2\noN = KN(3)", "oN * oN.k + (1 if oN else 0)", ["oN = KN(0)", "KN.__mul__ = lambda s, o: 100", "oN = 3.0 and KN(5)", "KN.k = 7", "KN.__bool__ = lambda s: False"]),
    "list subclass": ("class KN(list): pass\noN = KN([1.0, 2.0])", "sum(oN) + oN[0] + len(oN) + bool(oN)", ["oN.append(3.0)", "KN.__getitem__ = lambda s, i: 7.0", "KN.__len__ = lambda s: 0", "KN.__iter__ = lambda s: iter(())", "oN.clear()\noN.append(5)"]),
}  # fmt: skip

HELPERS = """
def helper(a, b=1): return (a * b).sum()
def reads(d):
    try:
        return d['k'] + 1.0
    except KeyError:
        return 10.0
    except TypeError:
        return 20.0
    finally:
        d.setdefault('seen', 0)
def matches(v):
    match v:
        case [a, b]: return a + b
        case [a]: return a * 10
        case {'a': c}: return c * 100
        case int(): return 1000
        case str() as s: return len(s)
    return 5
"""


def make(seed: int, readings: int = 4) -> tuple[str, list[str]]:
    """(text of a program that defines `f(x)`, statements that each change what it reads)."""
    rng = random.Random(seed)
    names = rng.choices(sorted(READINGS), k=readings)
    setup, lines, changes = [SETUP, HELPERS], ["def f(x):", "    y = x.sin()"], []
    for i, name in enumerate(names):
        before, expression, after = READINGS[name]
        setup.append(numbered(before, i))
        text = numbered(expression, i)
        shape = rng.randrange(4)
        if shape == 0:
            lines.append(f"    y = y + ({text})")
        elif shape == 1:
            lines.append(f"    v{i} = {text}\n    y = y * 0.5 + v{i}")
        elif shape == 2:
            setup.append(f"def inner{i}(x, y): return y + ({text}) * 1.5")
            lines.append(f"    y = inner{i}(x, y)")
        else:
            lines.append(f"    for _ in range(2):\n        y = y + ({text})")
        changes += [numbered(c, i) for c in after]
    lines.append("    return y")
    return "\n".join([*setup, *lines]) + "\n", changes


def numbered(text: str, i: int) -> str:
    """`text` with its names made its own: a capital N at the end of a word is a number."""
    import re

    return re.sub(r"\b([A-Za-z_]*)N\b", lambda m: f"{m.group(1)}N{i}" if m.group(0) not in _WORDS else m.group(0), text)


_WORDS = frozenset({"LT_N"})
