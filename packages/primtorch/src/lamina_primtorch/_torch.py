"""Every private torch name this package uses, each with what it is for.

torch.fx.Graph._graph_namespace / _insert / _len / _find_nodes_lookup_table   appending nodes without create_node's
checks (a third of the time)
torch.fx._lazy_graph_module                                                  a GraphModule whose Python text is made
                                                                             when it is first needed
torch._C._dispatch_has_kernel_for_dispatch_key, _dispatch_get_all_op_names    the coverage report
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

try:
    from torch.fx import _lazy_graph_module as _lazy
except ImportError:  # pragma: no cover - a torch without it
    _lazy = None  # type: ignore[assignment]

has_kernel_for_key = torch._C._dispatch_has_kernel_for_dispatch_key
all_op_names = torch._C._dispatch_get_all_op_names


class NodeAppender:
    """Appends call_function nodes to a new graph; names are unique, arguments are trusted."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.fast = all(hasattr(graph, n) for n in ("_graph_namespace", "_insert", "_len", "_find_nodes_lookup_table"))
        if self.fast:
            names = graph._graph_namespace
            self.fast = all(hasattr(names, n) for n in ("_used_names", "_base_count", "_obj_to_name"))
        self.bases: dict[Any, str] = {}

    def __call__(self, target: Any, args: tuple, kwargs: dict) -> fx.Node:
        graph = self.graph
        base = self.bases.get(target)
        if base is None or not self.fast:
            node = graph.create_node("call_function", target, args, kwargs)
            head, _, tail = node.name.rpartition("_")
            self.bases[target] = head if tail.isdigit() and head else node.name
            return node
        names = graph._graph_namespace
        used = names._used_names
        k = names._base_count.get(base, 0) + 1
        name = f"{base}_{k}"
        while name in used:
            k += 1
            name = f"{base}_{k}"
        used.add(name)
        names._base_count[base] = k
        node = fx.Node(graph, name, "call_function", target, args, kwargs)
        names._obj_to_name[node] = name
        graph._insert(node)
        graph._find_nodes_lookup_table.insert(node)
        graph._len += 1
        return node

    def copy(self, source: fx.Node) -> fx.Node:
        """A placeholder of another graph, under the same name where that is free."""
        graph = self.graph
        name = source.name
        if not self.fast or name in graph._graph_namespace._used_names or source.args:
            return graph.node_copy(source, lambda n: n)
        node = fx.Node(graph, name, "placeholder", source.target, (), {}, source.type)
        node.meta = dict(source.meta)
        names = graph._graph_namespace
        names._used_names.add(name)
        names._obj_to_name[node] = name
        graph._insert(node)
        graph._find_nodes_lookup_table.insert(node)
        graph._len += 1
        return node


def make_graph_module(root: Any, graph: fx.Graph, class_name: str) -> fx.GraphModule:
    """A GraphModule; its code is generated when it is first called or printed, where torch can do that."""
    if _lazy is None:
        return fx.GraphModule(root, graph, class_name)
    with _lazy._use_lazy_graph_module(True):
        return _lazy._make_graph_module(root, graph, class_name)
