"""One method an opcode, named after it; a true result means that the frame is left (returned or yielded).

The methods serve all supported CPython versions: where an opcode of one name means different things, the version
table decides.
"""

from __future__ import annotations

import builtins
import sys
from types import CodeType
from typing import Any, NoReturn

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..graph_break import GraphBreak, ObservedException
from ..roots import ModuleSource
from ..variables.base import VariableTracker
from ..variables.exception import make_exception
from ..variables.function import NestedFunctionVariable
from .base import NULL, Translator, constant
from .call import Calls
from .exceptions import Exceptions
from .flow import Flow
from .generator import escaped_stop
from .names import Names
from .operations import OPERATORS_310, Operations


class Opcodes(Names, Operations, Flow, Exceptions, Calls, Translator):
    """The opcode methods."""

    # -- nothing to do ----------------------------------------------------------------------------------------

    def NOP(self, inst: Instruction) -> Any:
        return None

    RESUME = CACHE = PRECALL = END_ASYNC_NOP = NOP

    def EXTENDED_ARG(self, inst: Instruction) -> Any:
        return None

    # -- stack ---------------------------------------------------------------------------------------------------

    def POP_TOP(self, inst: Instruction) -> Any:
        vt = self.stack.pop()
        if vt.notices_drop:
            self.looping = {depth: other for depth, other in self.looping.items() if other is not vt}
            kept = sys.getrefcount(vt) - 2  # without this name and the look at it
            vt.drop(self, kept)  # type: ignore[attr-defined]

    def PUSH_NULL(self, inst: Instruction) -> Any:
        self.stack.append(NULL)

    def COPY(self, inst: Instruction) -> Any:
        self.stack.append(self.stack[-inst.arg])

    def SWAP(self, inst: Instruction) -> Any:
        stack, n = self.stack, inst.arg
        stack[-1], stack[-n] = stack[-n], stack[-1]

    def DUP_TOP(self, inst: Instruction) -> Any:
        self.stack.append(self.stack[-1])

    def DUP_TOP_TWO(self, inst: Instruction) -> Any:
        self.stack.extend(self.stack[-2:])

    def ROT_TWO(self, inst: Instruction) -> Any:
        self._rotate(2)

    def ROT_THREE(self, inst: Instruction) -> Any:
        self._rotate(3)

    def ROT_FOUR(self, inst: Instruction) -> Any:
        self._rotate(4)

    def ROT_N(self, inst: Instruction) -> Any:
        self._rotate(inst.arg)

    def _rotate(self, n: int) -> None:
        self.stack.insert(len(self.stack) - n, self.stack.pop())

    # -- functions and classes -----------------------------------------------------------------------------------------

    def MAKE_FUNCTION(self, inst: Instruction) -> Any:
        qualified = None if v.PY311 else self.stack.pop()
        code = self.stack.pop().as_python_constant()
        flags = 0 if v.PY313 else inst.arg
        closure = self.unpack(self.stack.pop()) if flags & 8 else None
        annotations = self.stack.pop() if flags & 4 else None
        kwdefaults = self.stack.pop() if flags & 2 else None
        defaults = self.stack.pop() if flags & 1 else None
        made = self.make_function(code, closure, annotations, kwdefaults, defaults)
        if qualified is not None and qualified.as_python_constant() != code.co_name:
            made.attrs["__qualname__"] = qualified  # type: ignore[attr-defined]  # code objects have none before 3.11
        self.stack.append(made)

    def make_function(
        self, code: CodeType, closure: Any, annotations: Any, kwdefaults: Any, defaults: Any
    ) -> VariableTracker:
        return NestedFunctionVariable(
            code,
            self.f_globals,
            constant(code.co_name),
            tuple(self.unpack(defaults)) if defaults is not None else None,
            self.keyword_dict(kwdefaults) if kwdefaults is not None else None,
            annotations,
            tuple(closure) if closure is not None else None,
            self.f_globals.get("__name__"),
        )

    def SET_FUNCTION_ATTRIBUTE(self, inst: Instruction) -> Any:
        function, value = self.stack.pop(), self.stack.pop()
        if inst.arg == 1:
            function.default_vts = tuple(self.unpack(value))
        elif inst.arg == 2:
            function.kwdefault_vts = self.keyword_dict(value)
        elif inst.arg == 4:
            function.annotations = value
        else:
            function.closure = tuple(self.unpack(value))
        self.stack.append(function)

    def LOAD_BUILD_CLASS(self, inst: Instruction) -> Any:
        self.stack.append(self.wrap(builtins.__build_class__, None))

    def LOAD_ASSERTION_ERROR(self, inst: Instruction) -> Any:
        self.stack.append(self.wrap(AssertionError, None))

    def RETURN_VALUE(self, inst: Instruction) -> Any:
        self.result = self.stack.pop()
        return True

    def RETURN_CONST(self, inst: Instruction) -> Any:
        self.result = self.constant_of(inst.argval)
        return True

    # -- imports -------------------------------------------------------------------------------------------------

    def IMPORT_NAME(self, inst: Instruction) -> Any:
        from_list, level = self.stack.pop(), self.stack.pop()
        names = from_list.as_python_constant()
        name = inst.argval
        try:
            module = __import__(name, self.f_globals, None, names, level.as_python_constant())
        except ImportError as e:
            self.raise_import_error(type(e), *e.args, name=e.name, path=e.path)
        # the name that a module gives itself may be that of another one (`_io` says "io")
        known_as = next((n for n in (module.__name__, name) if sys.modules.get(n) is module), None)
        self.stack.append(self.wrap(module, None if known_as is None else ModuleSource(known_as)))

    def IMPORT_FROM(self, inst: Instruction) -> Any:
        module = self.stack[-1].realize()
        try:
            self.stack.append(module.get_attr(self, inst.argval))
        except ObservedException as e:
            if not e.matches(AttributeError):
                raise
            package = module.get_attr(self, "__name__").as_python_constant()
            full = f"{package}.{inst.argval}"
            if full not in sys.modules:
                path = getattr(sys.modules.get(package), "__file__", None)
                where = path or "unknown location"
                text = f"cannot import name {inst.argval!r} from {package!r} ({where})"
                self.raise_import_error(ImportError, text, name=package, path=path)
            self.stack.append(self.wrap(sys.modules[full], ModuleSource(full)))

    def raise_import_error(self, kind: type[ImportError], *args: Any, name: Any, path: Any) -> NoReturn:
        exc = make_exception(self, kind, [constant(a) for a in args])
        exc.fields.update(name=constant(name), path=constant(path))
        raise ObservedException(exc)

    def IMPORT_STAR(self, inst: Instruction) -> Any:
        raise GraphBreak("import", statement="import *")

    # -- intrinsics of 3.12+ -----------------------------------------------------------------------------------------

    def CALL_INTRINSIC_1(self, inst: Instruction) -> Any:
        if inst.arg == 3:  # a StopIteration that leaves a generator
            exc = self.stack[-1]
            if issubclass(exc.python_type(), StopIteration):
                raise ObservedException(escaped_stop(self, exc))
        elif inst.arg == 5:
            self.UNARY_POSITIVE(inst)
        elif inst.arg == 6:
            self.LIST_TO_TUPLE(inst)
        else:
            raise GraphBreak("opcode", opcode=f"CALL_INTRINSIC_1 {inst.arg}")

    def CALL_INTRINSIC_2(self, inst: Instruction) -> Any:
        if inst.arg == 1:
            return self.PREP_RERAISE_STAR(inst)
        raise GraphBreak("opcode", opcode=f"CALL_INTRINSIC_2 {inst.arg}")


UNTRANSLATED = frozenset(
    {
        "PRINT_EXPR",
        "RESERVED",
        "INTERPRETER_EXIT",
        "EXIT_INIT_CHECK",
        "ENTER_EXECUTOR",
        *v.PAIRED_LOCALS,
    }
)
"""Opcodes of which functions have none, and those that are decoded as two."""


def _untranslated(self: Any, inst: Instruction) -> Any:
    raise GraphBreak("opcode", opcode=inst.opname)


def build_handlers() -> list[Any]:
    """Opcode -> method, for the running CPython."""
    for name in OPERATORS_310:
        setattr(Opcodes, f"BINARY_{name}", Opcodes.binary_310)
        setattr(Opcodes, f"INPLACE_{name}", Opcodes.binary_310)
    table = [_untranslated] * 512
    for name, code in v.OPMAP.items():
        method = getattr(Opcodes, name, None)
        if method is not None and 0 <= code < 512:
            table[code] = method
    return table


Translator.HANDLERS = build_handlers()
