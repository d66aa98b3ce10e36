"""Maximum flow and minimum cut (Dinic's algorithm) on small integer networks."""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 60


class Network:
    """A directed network with integer capacities; vertices are 0..n-1, `add_vertex` makes one."""

    def __init__(self) -> None:
        self.first: list[list[int]] = []
        self.head: list[int] = []
        self.capacity: list[int] = []

    def add_vertex(self) -> int:
        self.first.append([])
        return len(self.first) - 1

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        """An edge and its residual partner (edge numbers e and e ^ 1)."""
        self.first[tail].append(len(self.head))
        self.head.append(head)
        self.capacity.append(capacity)
        self.first[head].append(len(self.head))
        self.head.append(tail)
        self.capacity.append(0)

    def _levels(self, source: int, sink: int) -> list[int] | None:
        level = [-1] * len(self.first)
        level[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self.first[vertex]:
                head = self.head[edge]
                if self.capacity[edge] > 0 and level[head] < 0:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level if level[sink] >= 0 else None

    def _augment(self, source: int, sink: int, level: list[int], at: list[int]) -> int:
        """One augmenting path along the levels, without recursion; its flow, 0 when there is none left."""
        path: list[int] = []
        vertex = source
        while True:
            if vertex == sink:
                flow = min(self.capacity[edge] for edge in path)
                for edge in path:
                    self.capacity[edge] -= flow
                    self.capacity[edge ^ 1] += flow
                return flow
            edges = self.first[vertex]
            while at[vertex] < len(edges):
                edge = edges[at[vertex]]
                head = self.head[edge]
                if self.capacity[edge] > 0 and level[head] == level[vertex] + 1:
                    break
                at[vertex] += 1
            else:
                if not path:
                    return 0
                level[vertex] = -1
                vertex = self.head[path.pop() ^ 1]
                at[vertex] += 1
                continue
            path.append(edge)
            vertex = head

    def cut(self, source: int, sink: int) -> tuple[int, set[int]]:
        """(value of the maximum flow, vertices on the source's side of a minimum cut)."""
        total = 0
        while (level := self._levels(source, sink)) is not None:
            at = [0] * len(self.first)
            while flow := self._augment(source, sink, level, at):
                total += flow
        side = {source}
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self.first[vertex]:
                head = self.head[edge]
                if self.capacity[edge] > 0 and head not in side:
                    side.add(head)
                    queue.append(head)
        return total, side

    def late_cut(self, source: int, sink: int) -> set[int]:
        """Vertices on the source's side of the minimum cut that lies nearest to the sink."""
        self.cut(source, sink)
        reaching = {sink}
        queue = deque([sink])
        while queue:
            vertex = queue.popleft()
            for edge in self.first[vertex]:
                tail = self.head[edge]
                if self.capacity[edge ^ 1] > 0 and tail not in reaching:
                    reaching.add(tail)
                    queue.append(tail)
        return set(range(len(self.first))) - reaching
