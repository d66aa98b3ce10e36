"""Exception objects of the traced program."""

from __future__ import annotations

import builtins
import types
from typing import Any

from .base import VariableTracker
from .container import ListVariable, TupleVariable
from .user_object import UserObjectVariable

#: BaseExceptionGroup, or a class that nothing is an instance of (Python 3.10)
GROUP: type = getattr(builtins, "BaseExceptionGroup", type("NoGroup", (BaseException,), {}))


def polyfills() -> Any:
    from ..translator import polyfills as module

    return module


class TracebackVariable(VariableTracker):
    """The traceback of an exception raised inside the region; its frames are not those of the plain program."""

    __slots__ = ("exception",)

    def __init__(self, exception: ExceptionVariable):
        super().__init__(None)
        self.exception = exception

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        tx.graph_break("frame_access", attribute=f"__traceback__.{name}")

    def children(self) -> Any:
        return (self.exception,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(traceback_of)
        codegen(self.exception)
        codegen.load_const(self.exception.user_stack)
        codegen.call_function(2)


class ExceptionVariable(UserObjectVariable):
    """An exception object: arguments, chain and extra fields of its C type; other attributes as for any object."""

    __slots__ = (
        *("args_vt", "args_vts", "cause", "context", "fields", "notes", "suppress_context", "traceback", "user_stack"),
    )

    def __init__(
        self,
        cls: type,
        args: list[VariableTracker],
        cls_vt: VariableTracker | None = None,
        value: Any = None,
        source: Any = None,
    ):
        super().__init__(value, source, cls, None, cls_vt)
        self.args_vts = args
        #: `args` as the program saw it: one object, until it is set anew
        self.args_vt: TupleVariable | None = None
        self.cause: VariableTracker | None = None
        self.context: VariableTracker | None = None
        self.suppress_context: VariableTracker | bool | None = None
        self.traceback: Any = None
        #: name -> tracker of fields of the C struct (`value` of StopIteration, `name` of AttributeError, ...)
        self.fields: dict[str, VariableTracker] = {}
        self.user_stack: Any = None

    def describe(self) -> str:
        return f"exception {self.cls.__name__}"

    def truth(self, tx: Any) -> bool | None:
        if self.cls.__module__ == "builtins":
            return True
        return super().truth(tx)

    def set_field(self, name: str, value: VariableTracker) -> None:
        self.fields[name] = value

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        none = tx.const(None)
        if name == "args":
            if self.args_vt is None or self.args_vt.items is not self.args_vts:
                self.args_vt = TupleVariable(self.args_vts)
            return self.args_vt
        if name == "__cause__":
            return self.cause or none
        if name == "__context__":
            return self.context or none
        if name == "__suppress_context__":
            flag = self.suppress_context
            if isinstance(flag, VariableTracker):
                return flag
            return tx.const(bool(flag) if flag is not None else self.cause is not None)
        if name == "__traceback__":
            return self.traceback_vt(tx)
        if name in self.fields:
            return self.fields[name]
        return self.default_field(tx, name)

    def traceback_vt(self, tx: Any) -> VariableTracker:
        """The traceback: None before the exception was raised, else an object that may only be passed on."""
        if self.traceback is None:
            if self.user_stack is None:
                return tx.const(None)
            self.traceback = TracebackVariable(self)
        return self.traceback

    def default_field(self, tx: Any, name: str) -> VariableTracker | None:
        """Fields that the C type computes from its arguments."""
        if self.value is not None:
            return self.field_of_real(tx, name)
        none = tx.const(None)
        args = self.args_vts
        if issubclass(self.cls, StopIteration) and name == "value":
            return args[0] if args else none
        if issubclass(self.cls, SystemExit) and name == "code":
            return none if not args else args[0] if len(args) == 1 else TupleVariable(list(args))
        if issubclass(self.cls, (AttributeError, NameError)) and name in ("name", "obj"):
            return none
        if issubclass(self.cls, ImportError):
            if name == "msg":
                return args[0] if len(args) == 1 else none
            return none
        if issubclass(self.cls, OSError) and name in ("errno", "strerror", "filename", "filename2"):
            if not 2 <= len(args) <= 5 and name != "characters_written":
                return none
            index = {"errno": 0, "strerror": 1, "filename": 2, "filename2": 4}[name]
            return self.fields.get(name) or (args[index] if index < len(args) else none)
        if issubclass(self.cls, GROUP) and name in ("message", "exceptions"):
            if name == "message":
                return args[0]
            return TupleVariable(args[1].unpack(tx))
        tx.graph_break("unknown_attribute", type=self.cls.__name__, attribute=name)

    def field_of_real(self, tx: Any, name: str) -> VariableTracker | None:
        """A field of an exception from outside, which may have been set apart from its arguments."""
        from ..source import AttrSource
        from .builder import wrap_lazy

        descriptor = next((k.__dict__[name] for k in self.cls.__mro__ if name in k.__dict__), None)
        if type(descriptor) not in (types.MemberDescriptorType, types.GetSetDescriptorType):
            return None
        source = None if self.source is None else AttrSource(self.source, name)
        field = self.fields[name] = wrap_lazy(tx, descriptor.__get__(self.value), source)
        return field

    def set_member(self, tx: Any, name: str, value: VariableTracker) -> bool:
        from .constant import is_none

        value = value.realize()
        tx.output.side_effects.mutation(self)
        if name == "args":
            self.args_vts = value.unpack(tx)
        elif name == "__cause__":
            self.cause = None if is_none(value) else value
            self.suppress_context = tx.const(True)
        elif name == "__context__":
            self.context = None if is_none(value) else value
        elif name == "__suppress_context__":
            self.suppress_context = value
        elif name == "__traceback__":
            self.traceback = None if is_none(value) else value
            if self.traceback is None:
                self.user_stack = None
        elif name == "__dict__":
            return super().set_member(tx, name, value)
        else:
            self.fields[name] = value
        return True

    # -- C methods ------------------------------------------------------------------------------------------------

    def method_init(self, tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if kwargs:
            allowed = (
                {"name", "path", "obj"} if issubclass(self.cls, (ImportError, AttributeError, NameError)) else set()
            )
            if not set(kwargs) <= allowed:
                tx.raise_exception(TypeError, f"{self.cls.__name__}() takes no keyword arguments")
            self.fields.update(kwargs)
        self.args_vts = list(args)
        if issubclass(self.cls, OSError) and len(args) in (3, 4, 5):
            self.fields["filename"] = args[2]
            self.args_vts = list(args[:2])
            self.fields["errno"], self.fields["strerror"] = args[0], args[1]
        return tx.const(None)

    def text(self, tx: Any) -> str:
        """`str(exc)` by the rules of the C types."""
        from .constant import is_none
        from .formatting import repr_of, text_of

        args = self.args_vts
        if issubclass(self.cls, OSError) and self.value is not None:
            errno, strerror, filename = (self.get_member(tx, n) for n in ("errno", "strerror", "filename"))
            if not is_none(filename):
                return f"[Errno {text_of(tx, errno)}] {text_of(tx, strerror)}: {repr_of(tx, filename)}"
        if issubclass(self.cls, KeyError) and len(args) == 1:
            return repr_of(tx, args[0])
        if issubclass(self.cls, ImportError) and args:
            return text_of(tx, args[0])
        if issubclass(self.cls, OSError) and "errno" in self.fields:
            parts = [text_of(tx, self.fields["errno"]), text_of(tx, self.fields["strerror"])]
            return f"[Errno {parts[0]}] {parts[1]}: {repr_of(tx, self.fields['filename'])}"
        if issubclass(self.cls, OSError) and len(args) == 2:
            return f"[Errno {text_of(tx, args[0])}] {text_of(tx, args[1])}"
        if issubclass(self.cls, GROUP) and len(args) == 2:
            n = len(args[1].unpack(tx))
            return f"{text_of(tx, args[0])} ({n} sub-exception{'s' if n != 1 else ''})"
        if issubclass(self.cls, (SyntaxError, UnicodeError)):
            tx.graph_break("unsupported_builtin_method", type=self.cls.__name__, method="__str__")
        if not args:
            return ""
        if len(args) == 1:
            return text_of(tx, args[0])
        return repr_of(tx, TupleVariable(list(args)))

    def method_str(self, tx: Any) -> VariableTracker:
        return tx.const(self.text(tx))

    def method_repr(self, tx: Any) -> VariableTracker:
        from .formatting import repr_of

        name = self.cls.__name__
        if len(self.args_vts) == 1:
            return tx.const(f"{name}({repr_of(tx, self.args_vts[0])})")
        return tx.const(name + repr_of(tx, TupleVariable(list(self.args_vts))))

    def method_with_traceback(self, tx: Any, traceback: VariableTracker) -> VariableTracker:
        self.set_member(tx, "__traceback__", traceback)
        return self

    def method_derive(self, tx: Any, parts: VariableTracker) -> VariableTracker:
        return tx.inline_real(polyfills().group_derive, self, parts)

    def method_split(self, tx: Any, condition: VariableTracker) -> VariableTracker:
        return tx.inline_real(polyfills().group_split, self, condition)

    def method_subgroup(self, tx: Any, condition: VariableTracker) -> VariableTracker:
        return tx.inline_real(polyfills().group_subgroup, self, condition)

    def method_add_note(self, tx: Any, note: VariableTracker) -> VariableTracker:
        if not issubclass(note.realize().python_type(), str):
            tx.raise_exception(TypeError, f"note must be a str, not '{note.realize().python_type().__name__}'")
        notes = self.instance_attr(tx, "__notes__", False)
        if notes is None:
            notes = ListVariable([])
            self.store_attr(tx, "__notes__", notes)
        notes.realize().call_builtin_method(tx, "append", [note], {})
        return tx.const(None)

    def has_instance_dict(self) -> bool:
        return True

    # -- leaving the region -------------------------------------------------------------------------------------

    def children(self) -> Any:
        yield from super().children()
        if isinstance(self.traceback, VariableTracker) and not isinstance(self.traceback, TracebackVariable):
            yield self.traceback
        if self.args_vt is not None and self.args_vt.items is self.args_vts:
            yield self.args_vt
        else:
            yield from self.args_vts
        yield from self.fields.values()
        for link in (self.cause, self.context):
            if link is not None:
                yield link

    def reconstruct(self, codegen: Any) -> None:
        if self.value is not None:
            codegen.load_global_alias("exception", self.value)
            return
        codegen.push_function(make_real_exception)
        self.push_class(codegen)
        if self.args_vt is not None and self.args_vt.items is self.args_vts:
            codegen(self.args_vt)
        else:
            for arg in self.args_vts:
                codegen(arg)
            codegen.build("BUILD_TUPLE", len(self.args_vts))
        codegen.call_function(2)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)

    def fill(self, codegen: Any) -> None:
        super().fill(codegen)
        for name, value in self.fields.items():
            codegen.push_function(set_field)
            codegen(self)
            codegen.load_const(name)
            codegen(value)
            codegen.call_function(3)
            codegen.pop()
        if isinstance(self.traceback, VariableTracker) and not isinstance(self.traceback, TracebackVariable):
            codegen.push_function(set_field)
            codegen(self)
            codegen.load_const("__traceback__")
            codegen(self.traceback)
            codegen.call_function(3)
            codegen.pop()
        elif self.user_stack is not None:
            codegen.push_function(traceback_of)
            codegen(self)
            codegen.load_const(self.user_stack)
            codegen.call_function(2)
            codegen.pop()
        links = {"__context__": self.context, "__cause__": self.cause, "__suppress_context__": self.suppress_context}
        for name, value in links.items():
            if value is None:
                continue
            codegen.push_function(set_field)
            codegen(self)
            codegen.load_const(name)
            if isinstance(value, VariableTracker):
                codegen(value)
            else:
                codegen.load_const(value)
            codegen.call_function(3)
            codegen.pop()


def chain_context(exc: Any, handled: Any) -> None:
    """Sets `__context__` as raising does: the exception being handled, without making a cycle."""
    if handled is None or handled is exc:
        return
    link, seen = handled, set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        following = getattr(link, "context", None)
        following = None if following is None else following.realize()
        if following is exc:
            link.context = None
            break
        link = following
    exc.context = handled


def make_real_exception(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An exception object with these args, without running the class' own `__new__` or `__init__`."""
    if issubclass(cls, (GROUP, OSError, UnicodeError, SyntaxError)):
        base = next(k for k in cls.__mro__ if not k.__flags__ & (1 << 9))
        obj = base.__new__(cls, *args)
        if not issubclass(cls, GROUP):
            base.__init__(obj, *args)
        return obj
    obj = BaseException.__new__(cls, *args)
    builtin = next(k for k in cls.__mro__ if not k.__flags__ & (1 << 9))
    builtin.__init__(obj, *args)
    set_field(obj, "args", args)  # the very tuple that the program may hold
    return obj


def traceback_of(obj: BaseException, frames: tuple[tuple[str, str, int], ...]) -> types.TracebackType | None:
    """The traceback of an exception that the region raised, given to it if it has none yet."""
    traceback = BaseException.__getattribute__(obj, "__traceback__")
    if traceback is None:
        give_traceback(obj, frames)
        traceback = BaseException.__getattribute__(obj, "__traceback__")
    return traceback


def give_traceback(obj: BaseException, frames: tuple[tuple[str, str, int], ...]) -> None:
    """What raising leaves on an exception that the region raised and caught: lines (file, function, line number),
    outermost first, on frames that hold nothing. The interpreter takes for granted that a handled exception has one."""
    traceback = None
    for file, name, line in reversed(frames or ((__file__, "unknown", 1),)):
        code = _suspended.__code__.replace(co_filename=file, co_name=name, co_firstlineno=line)
        # the frame of a generator at rest leads to no caller, whose objects it would keep alive
        frame = types.FunctionType(code, {}, name)().gi_frame
        traceback = types.TracebackType(traceback, frame, -1, line)
    BaseException.with_traceback(obj, traceback)


def _suspended() -> Any:
    yield


def set_field(obj: Any, name: str, value: Any) -> None:
    """Sets a field of an exception object, for generated code."""
    try:
        BaseException.__setattr__(obj, name, value)
    except (AttributeError, TypeError):
        pass


def new_exception(tx: Any, cls: VariableTracker, args: list[VariableTracker]) -> VariableTracker:
    """What `BaseException.__new__(cls, *args)` does."""
    from .user_class import class_vt_of

    real: type = cls.value  # type: ignore[attr-defined]
    if issubclass(real, GROUP):
        return new_group(tx, cls, args)
    if real is OSError and 2 <= len(args) <= 5 and args[0].realize().is_python_constant():
        by_number = type(OSError(args[0].as_python_constant(), ""))  # FileNotFoundError, ...
        if by_number is not OSError:
            return ExceptionVariable(by_number, list(args), class_vt_of(tx, by_number))
    return ExceptionVariable(real, list(args), cls)


def new_group(tx: Any, cls: VariableTracker, args: list[VariableTracker]) -> VariableTracker:
    """`BaseExceptionGroup.__new__(cls, message, exceptions)`."""
    from .user_class import class_vt_of

    real: type = cls.value  # type: ignore[attr-defined]
    if len(args) != 2:
        tx.graph_break("bad_builtin_arguments", type=real.__name__, method="__new__")
    members = [m.realize() for m in args[1].unpack(tx)]
    if not members:
        tx.raise_exception(ValueError, "second argument (exceptions) must be a non-empty sequence")
    for i, member in enumerate(members):
        if not issubclass(member.python_type(), BaseException):
            tx.raise_exception(ValueError, f"Item {i} of second argument (exceptions) is not an exception")
    if all(issubclass(m.python_type(), Exception) for m in members):
        if real is GROUP:
            real, cls = builtins.ExceptionGroup, class_vt_of(tx, builtins.ExceptionGroup)  # type: ignore[attr-defined]
    elif issubclass(real, Exception):
        tx.raise_exception(TypeError, "Cannot nest BaseExceptions in an ExceptionGroup")
    return ExceptionVariable(real, [args[0], args[1]], cls)


def make_exception(tx: Any, exc_type: type, args: list[Any]) -> VariableTracker:
    """A new exception object of a builtin class; arguments are trackers or plain constants."""
    vts = [a if isinstance(a, VariableTracker) else tx.const(a) for a in args]
    vt = ExceptionVariable(exc_type, vts)
    vt.context = tx.root.handled_exception
    return vt


def exception_from_real(tx: Any, error: BaseException) -> VariableTracker:
    """Tracker of an exception that a folded call raised: same type, arguments and fields."""
    from .constant import wrap_result

    vt = ExceptionVariable(type(error), [wrap_result(tx, a) for a in error.args])
    vt.context = tx.root.handled_exception
    if isinstance(error, (AttributeError, NameError, ImportError)):
        name = getattr(error, "name", None)
        if isinstance(name, str):
            vt.fields["name"] = tx.const(name)
    if isinstance(error, OSError) and error.filename is not None:
        vt.fields["filename"] = wrap_result(tx, error.filename)
        vt.fields["errno"], vt.fields["strerror"] = tx.const(error.errno), tx.const(error.strerror)
    return vt


def wrap_exception(tx: Any, value: BaseException, source: Any) -> VariableTracker:
    """An exception object from outside."""
    from ..source import AttrSource
    from .builder import wrap_lazy

    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    vt = ExceptionVariable(type(value), [], None, value, source)
    tx.output.builder.remember(value, vt)
    args_source = None if source is None else AttrSource(source, "args")
    vt.args_vt = tx.wrap(value.args, args_source).realize()
    vt.args_vts = vt.args_vt.items
    for name, attr in (("__cause__", "cause"), ("__context__", "context")):
        link = getattr(value, name)
        if link is not None:
            setattr(vt, attr, wrap_lazy(tx, link, None if source is None else AttrSource(source, name)))
    vt.suppress_context = tx.const(value.__suppress_context__)
    vt.user_stack = ()
    return vt


def _register() -> None:
    from .builder import wraps_if

    wraps_if(lambda v: issubclass(type(v), BaseException), priority=-10)(wrap_exception)


_register()
