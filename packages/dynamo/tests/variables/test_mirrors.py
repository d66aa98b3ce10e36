# ruff: noqa: E501
"""Buffers, byte arrays and seeded generators that the region makes: random sequences of calls, as plain Python's."""

import copy
import io
import random

import pytest
import torch
from differential import check

import lamina_dynamo

BYTES = [
    "b.append({n})", "b.extend([{n}, 3])", "b.extend(b'xy')", "b.insert({i}, {n})", "b += b'q{n}'", "b[0:1] = b'zz'", "b.pop()",
    "b.pop({i})", "b.reverse()", "del b[{i}:]", "b[{i}] = {n}", "b.remove({n})", "b.clear()", "b = b + bytearray(b'w')",
    "b = b * 2", "b[::2] = b[::2]", "out.append(b.find(b'y'))", "out.append(b.hex())", "out.append(bytes(b))", "out.append(len(b))",
    "out.append(b == b'xy')", "out.append({n} in b)", "out.append(b[{i}:])", "out.append(b.decode('latin1').upper())",
    "out.append(list(b))", "out.append(b.split(b'x'))", "out.append(b'a' + b)", "out.append(copy.copy(b))", "out.append(b[{i}])",
    "out.append(sum(b))", "out.append(b or 1)", "out.append(repr(b))", "out.append(b)", "out.append(b.count(b'y'))",
    "out.append(b.startswith(b'z'))", "out.append(b.upper())", "out.append(b < b'zz')", "out.append(sorted(b))", "b.append(300)",
]  # fmt: skip
TEXT = [
    "b.write('ab{n}\\n')", "print('x', {n}, file=b)", "print('y', file=b, end='', sep='')", "out.append(b.getvalue())",
    "out.append(b.read(2))", "out.append(b.readline())", "b.seek(0)", "b.seek({i})", "out.append(b.tell())", "b.truncate({i})",
    "b.writelines(['p', 'q\\n'])", "out.extend(b)", "out.append(b.readlines())", "out.append(b.closed)", "out.append(next(b, 'end'))",
    "out.append(copy.copy(b).getvalue())", "b.close()", "out.append(b.readable())", "b.write(3)", "out.append(f'{{len(b.getvalue())}}')",
]  # fmt: skip
RANDOM = [
    "out.append(b.random())", "out.append(b.randint(1, {n} + 1))", "b.seed({n})", "out.append(b.choice(items))", "b.shuffle(items)",
    "out.append(b.sample(items, 2))", "out.append(b.gauss(0, 1))", "out.append(b.choices([1, 2, 3], k=2))", "s = b.getstate()",
    "b.setstate(s)", "out.append(b.getrandbits(70))", "out.append(b.randbytes(3))", "out.append(b.uniform(1, 2))", "b = copy.copy(b)",
]  # fmt: skip
KINDS = {
    "bytearray": ("bytearray(b'xyz')", BYTES),
    "text": ("io.StringIO('one\\ntwo\\n')", TEXT),
    "random": ("random.Random(4)", RANDOM),
}


def program(kind, seed):
    rng = random.Random(seed)
    start, calls = KINDS[kind]
    lines = [
        "def f(x):",
        f"    b = {start}",
        "    s = random.Random(9).getstate()",
        "    items = [1, 2.5, 'c', x]",
        "    out = []",
    ]
    for _ in range(rng.randint(3, 9)):
        call = rng.choice(calls).format(n=rng.randint(0, 120), i=rng.randint(0, 3))
        if rng.random() < 0.5:
            lines.append(
                f"    try:\n        {call}\n    except Exception as e:\n        out.append((type(e).__name__, str(e)))"
            )
        else:
            lines.append(f"    {call}")
    ending = {
        "bytearray": "b, bytes(b)",
        "text": "None if b.closed else (b.getvalue(), b.tell()), b",
        "random": "b.getstate(), items",
    }
    lines.append(f"    return x + len(out), out, {ending[kind]}")
    names = {"io": io, "random": random, "copy": copy}
    exec("\n".join(lines), names)
    return names["f"], "\n".join(lines)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(25))
def test_random_calls(kind, seed):
    fn, text = program(kind, seed)
    try:
        check(fn, lambda: (torch.arange(3.0),), False)
    except AssertionError as e:
        raise AssertionError(f"{text}\n{e}") from None


def test_a_buffer_leaves_the_region_as_it_is():
    def f(x):
        text, data, raw = io.StringIO("ab\ncd"), io.BytesIO(b"abc"), bytearray(b"k")
        text.readline()
        data.seek(1)
        raw += b"ey"
        return x + 1, text, data, raw, [raw]

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(f)
    first, second = compiled(torch.ones(2)), compiled(torch.ones(2))
    for _, text, data, raw, holder in (first, second):
        assert text.read() == "cd" and text.getvalue() == "ab\ncd" and data.read() == b"bc" and raw == bytearray(b"key")
        assert holder[0] is raw
    assert first[3] is not second[3] and first[1] is not second[1]


def test_a_buffer_in_a_block():
    def f(x):
        with io.StringIO() as b:
            b.write("abc")
            n = len(b.getvalue())
        return x * n + b.closed

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(f)
    assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))
