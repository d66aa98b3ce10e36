"""Symbolic translation of Python bytecode."""

from .translate import BreakRecord, TranslationResult, translate

__all__ = ["BreakRecord", "TranslationResult", "translate"]
