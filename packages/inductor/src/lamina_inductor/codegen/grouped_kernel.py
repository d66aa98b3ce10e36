"""Products of row groups as one kernel: its description.

``_grouped_mm(x, w, offs)``: rows ``offs[g - 1]`` to ``offs[g]`` of `x` times ``w[g]``. The parts of the kernel are
bodies over the loops ``z`` (groups), ``m`` (rows), ``n`` (columns), ``d`` (terms of a sum), each a phase that ends with
a store: ``left`` (m, d), ``right`` (z, d, n), then one phase (m, n) for each result, in which ``load("product")`` is
the product: what follows it elementwise is computed on its tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .kernel import KernelSpec


@dataclass(frozen=True, eq=False)
class GroupedKernel(KernelSpec):
    """See the module's docstring. `extents`: groups, rows, columns, terms. `ends`: the buffer of the groups' ends.
    `rounds`: the dtype that the product is rounded to."""

    extents: tuple[int, int, int, int] = (0, 0, 0, 0)
    ends: str = ""
    rounds: torch.dtype = torch.float32

    def key(self) -> str:
        """Equal for kernels that one compilation serves."""
        place = [b.name for b in self.buffers].index(self.ends)
        return f"grouped {self.extents} {place} {self.rounds}\n{super().key()}"


__all__ = ["GroupedKernel"]
