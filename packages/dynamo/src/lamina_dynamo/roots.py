"""Sources that paths start from: arguments, globals, builtins, modules, constants of the translation, closures."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from .source import Scope, Source


class LocalSource(Source):
    """An argument of the frame; with ``is_cell`` the contents of a cell or free variable of that name."""

    __slots__ = ("is_cell", "local_name")
    access_op = "LOCAL"

    def __init__(self, name: str, is_cell: bool = False) -> None:
        super().__init__(None, name, is_cell)
        self.local_name, self.is_cell = name, is_cell

    def spell(self) -> str:
        return self.local_name

    def step(self, value: Any, scope: Scope) -> Any:
        return scope.f_locals[self.local_name]

    def operand(self) -> Any:
        return self.local_name

    def emit(self, codegen: Any) -> None:
        if self.is_cell:
            codegen.load_deref(self.local_name)
        else:
            codegen.load_local(self.local_name)


class GlobalSource(Source):
    """A name in a globals dict: the frame's own (``globals_source`` None) or the one that ``globals_source``
    evaluates to,
    usually ``AttrSource(function_source, "__globals__")`` or ``SelfDictSource(ModuleSource("package.module"))``."""

    __slots__ = ("global_name",)

    def __init__(self, name: str, globals_source: Source | None = None) -> None:
        super().__init__(globals_source, name)
        self.global_name = name

    @property
    def access_op(self) -> str:  # type: ignore[override]
        return "GLOBAL" if self.base is None else "DICT_ITEM"

    def spell(self) -> str:
        return self.global_name

    def step(self, value: Any, scope: Scope) -> Any:
        return (scope.f_globals if self.base is None else value)[self.global_name]

    def operand(self) -> Any:
        return self.global_name

    def emit(self, codegen: Any) -> None:
        if self.base is None:
            codegen.load_global(self.global_name)
        else:
            codegen.load_const(self.global_name)
            codegen.binary_subscr()


class BuiltinSource(Source):
    """A name in the frame's builtins (and not in its globals: guard GLOBAL absence with ``DICT_NOT_CONTAINS`` where
    it matters).
    """

    __slots__ = ("builtin_name",)
    access_op = "BUILTIN"

    def __init__(self, name: str) -> None:
        super().__init__(None, name)
        self.builtin_name = name

    def spell(self) -> str:
        return self.builtin_name

    def step(self, value: Any, scope: Scope) -> Any:
        return scope.f_builtins[self.builtin_name]

    def operand(self) -> Any:
        return self.builtin_name

    def emit(self, codegen: Any) -> None:
        codegen.load_global(self.builtin_name)


class GlobalsSource(Source):
    """The frame's globals dict itself."""

    __slots__ = ()
    access_op = "GLOBALS"

    def __init__(self) -> None:
        super().__init__(None)

    def spell(self) -> str:
        return "globals()"

    def step(self, value: Any, scope: Scope) -> Any:
        return scope.f_globals

    def emit(self, codegen: Any) -> None:
        codegen.push_function(builtins.globals)
        codegen.call_function(0)


class ModuleSource(Source):
    """An imported module, by its name in ``sys.modules``."""

    __slots__ = ("module_name",)
    access_op = "SYS_MODULE"

    def __init__(self, module_name: str) -> None:
        super().__init__(None, module_name)
        self.module_name = module_name

    def spell(self) -> str:
        return self.module_name

    def step(self, value: Any, scope: Scope) -> Any:
        return sys.modules[self.module_name]

    def operand(self) -> Any:
        return self.module_name

    def emit(self, codegen: Any) -> None:
        codegen.load_const(sys.modules[self.module_name])


class ConstantSource(Source):
    """A fixed object of the compiled code (its name is only for reading). The program keeps it alive: not for the
    user's data.
    """

    __slots__ = ("label", "value")
    access_op = "CONST"

    def __init__(self, label: str, value: Any) -> None:
        super().__init__(None, label, id(value))
        self.label, self.value = label, value

    def spell(self) -> str:
        return self.label

    def step(self, value: Any, scope: Scope) -> Any:
        return self.value

    def operand(self) -> Any:
        return self.value

    def emit(self, codegen: Any) -> None:
        codegen.load_const(self.value)


class ClosureSource(Source):
    """A cell: of the frame itself (``base`` None, by free-variable name) or number ``index`` of a function's
    ``__closure__``.
    """

    __slots__ = ("index",)

    def __init__(self, base: Source | None, index: int | str) -> None:
        super().__init__(base, index)
        self.index = index

    @property
    def access_op(self) -> str:  # type: ignore[override]
        return "FRAME_CELL" if self.base is None else "FUNC_CELL"

    def spell(self) -> str:
        return f"<cell {self.index}>" if self.base is None else f"{self.base.name}.__closure__[{self.index}]"

    def step(self, value: Any, scope: Scope) -> Any:
        if self.base is None:
            return scope.closure[scope.free_names.index(self.index)]  # type: ignore[arg-type]
        return value.__closure__[self.index]

    def operand(self) -> Any:
        return self.index

    def emit(self, codegen: Any) -> None:
        if self.base is None:
            codegen.load_closure(self.index)
        else:
            codegen.load_attr("__closure__")
            codegen.load_const(self.index)
            codegen.binary_subscr()
