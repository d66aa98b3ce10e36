"""torch's own operator samples: every ATen call they make, forward and backward, against the shape rules and the
decompositions.
"""

import contextlib

import pytest
import torch
from aten_calls import Watch, ops, replay
from one_op import compare

from lamina_primtorch import TensorMeta
from lamina_primtorch.decomps import DECOMPOSITIONS
from lamina_primtorch.shape_rules import RULES

UNSPECIFIED = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"}  # values mean nothing
LAZY = {"_conj"}  # eager keeps a bit instead of a value; not comparable inside a dispatch mode
SHARDS = 6


def describe(x):
    return torch.utils._pytree.tree_map(
        lambda t: f"{str(t.dtype)[6:]}{tuple(t.shape)}{tuple(t.stride())}" if isinstance(t, torch.Tensor) else t, x
    )


class Judge:
    """Checks calls and gathers what is wrong."""

    def __init__(self):
        self.wrong = []
        self.rules = self.decomposed = 0

    def __call__(self, op, args, kwargs, out, state):
        self.rule(op, args, kwargs, out)
        name = str(op)[5:]
        if name in DECOMPOSITIONS and name.split(".")[0] not in UNSPECIFIED | LAZY:
            try:
                problem, rewritten = compare(op, args, kwargs, out)
            except Exception as e:
                problem, rewritten = f"{type(e).__name__}: {e}", False
            self.decomposed += rewritten
            if problem:
                self.wrong.append(f"{name} {describe(args)} {kwargs}: {problem}")

    def rule(self, op, args, kwargs, out):
        rule = RULES.get(op)
        if rule is None:
            return
        with contextlib.suppress(NotImplementedError):
            got = rule(args, kwargs)
            self.rules += 1
            metas = [got] if isinstance(got, TensorMeta) else list(got)
            outs = [out] if isinstance(out, torch.Tensor) else list(out)
            for m, o in zip(metas, outs, strict=True):
                if (m is None) != (o is None):
                    self.wrong.append(f"rule of {op}: {m} for {o}")
                elif m is not None and tuple(m) != (tuple(o.shape), tuple(o.stride()), o.dtype, o.device):
                    self.wrong.append(f"rule of {op} {describe(args)}: {tuple(m)}, eager {describe(o)}")


@pytest.mark.parametrize("layout", ["plain", "strided", "transposed"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_operator_samples(shard, layout, full):
    judge = Judge()
    watch = Watch(judge, 10_000 if full else 12)
    dtypes = [torch.float32, torch.int64, torch.bool, torch.bfloat16]
    if full:
        dtypes += [torch.float64, torch.float16, torch.uint8, torch.int8, torch.int32, torch.complex64]
    elif layout != "plain":
        dtypes = [torch.float32]
    infos = [info for k, info in enumerate(ops()) if k % SHARDS == shard]
    replay(watch, infos, dtypes, 10_000 if full else 3, layout=layout)
    assert judge.rules > 100 and judge.decomposed > 100
    assert not judge.wrong, f"{len(judge.wrong)} wrong:\n" + "\n".join(judge.wrong[:20])
