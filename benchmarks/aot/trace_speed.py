"""Seconds to trace a joint graph: lamina's stage against torch's own, side by side on the same program.

    python benchmarks/aot/trace_speed.py [--layers 12] [--repeat 2]

The program is transformers' BERT for masked LM with labels (random weights), parameters given as inputs.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.fx as fx

import lamina_aot_autograd as aot


def make_program(layers: int) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """One call of the model as a graph of one node, and its inputs: parameters, buffers, token ids."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(num_hidden_layers=layers))
    names = [n for n, _ in model.named_parameters()] + [n for n, _ in model.named_buffers()]
    values = [*model.parameters(), *model.buffers()]
    ids = torch.randint(0, 30000, (2, 64))

    def run(*flat: torch.Tensor) -> tuple[torch.Tensor]:
        state = dict(zip(names, flat, strict=False))
        tokens = flat[-1]
        return (torch.func.functional_call(model, state, (), {"input_ids": tokens, "labels": tokens}).loss,)

    graph = fx.Graph()
    inputs = tuple(graph.placeholder(n.replace(".", "_")) for n in [*names, "tokens"])
    graph.output(graph.call_function(run, inputs))
    return fx.GraphModule(torch.nn.Module(), graph), [*values, ids]


def main() -> None:
    """Print both times, of the clock and of the processor, and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    gm, inputs = make_program(options.layers)
    ours = []
    for _ in range(options.repeat):
        start, busy = time.perf_counter(), time.process_time()
        joint = aot.trace_joint(gm, inputs)
        ours.append((time.perf_counter() - start, time.process_time() - busy))
    from torch._functorch.aot_autograd import aot_function
    from torch._subclasses import FakeTensorMode

    theirs = []
    for _ in range(options.repeat):
        mode = FakeTensorMode()
        fakes = [mode.from_tensor(t) for t in inputs]
        function = aot_function(gm.forward, lambda g, _: g, lambda g, _: g)
        start, busy = time.perf_counter(), time.process_time()
        function(*fakes)
        theirs.append((time.perf_counter() - start, time.process_time() - busy))
    nodes = len(joint.graph.nodes)
    print(f"joint graph of {options.layers} layers: {nodes} nodes; torch {torch.__version__}")
    for k, what in enumerate(("seconds", "processor seconds")):
        a, b = min(t[k] for t in ours), min(t[k] for t in theirs)
        print(f"{what}: lamina {a:.3f} ({a / nodes * 1e6:.0f} us a node), torch {b:.3f}; ratio {b / a:.1f}")
    print("all runs:", *[[f"{t:.3f}" for t, _ in times] for times in (ours, theirs)])


if __name__ == "__main__":
    main()
