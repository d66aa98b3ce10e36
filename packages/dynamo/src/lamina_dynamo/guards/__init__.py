"""Guards: the assumptions of a compiled frame, their table of kinds and the program that checks them."""

from .kinds import KINDS, Guard, ShapeExpr, TensorExpect, check_guard

__all__ = ["KINDS", "Guard", "ShapeExpr", "TensorExpect", "check_guard"]
