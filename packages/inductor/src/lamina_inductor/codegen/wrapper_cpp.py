"""The native function of a whole graph: reads sizes, allocates, runs kernels and extern ops, hands out results. Python
is not involved.

Every buffer of the program may have a *pointer* ``p_x`` (for kernels) and a *handle* (a tensor object, for extern ops
and outputs). Handles
of buffers that only kernels touch are never made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import TargetError
from ..index import Expr, to_expr
from ..ir.layout import Layout, same_strides
from ..ir.program import (
    Alloc,
    BindSize,
    BufferDecl,
    BufferRef,
    ExternCall,
    Free,
    GraphProgram,
    KernelCall,
    Output,
    Reuse,
    View,
)  # fmt: skip
from ..ir.region import RegionCallee
from .cpp_index import c_index
from .shared_calls import NUMBER, CallBlock, share_calls
from .small_gemm import write_small_gemm
from .wrapper_externs import ExternPlan, Names, NoRoute, device_code, dtype_code, plan_extern, python_call

_STACK_ARENA = 16384
_GIL_BYTES = 1 << 18
_LONG_RETURNS = 40
_EARLY_BYTES = 1 << 18  # results of at least this size are handed out as soon as they are ready
_VARIABLE = re.compile(r"\b[mhp]_\w+")
_FEW_INLINE = 4  # at least one in so many calls is written inline, or none in a long function


class _Places:
    """What a graph's function and those of its regions share: numbers of extern calls, places of constants, names."""

    def __init__(self, program: GraphProgram) -> None:
        self.program = program
        self.externs = 0
        self.constants: dict[RegionCallee, int] = {}
        self.names: dict[RegionCallee, str] = {}
        count = len(program.constants)
        for k, callee in enumerate(program.callees):
            self.names[callee] = f"region_{k}"
            self.constants[callee] = count
            count += len(callee.program.constants)

    def take_number(self) -> int:
        """The number of the next extern call."""
        self.externs += 1
        return self.externs - 1


@dataclass
class WrapperText:
    """Result of `write_wrapper`: the C++ text, the Python callbacks by extern number and the calls that they make, and
    what the runtime has to do for outputs."""

    source: str
    callbacks: dict[int, tuple[Callable, int]] = field(default_factory=dict)
    calls: dict[int, ExternCall] = field(default_factory=dict)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    routes: list[tuple[str, str, str]] = field(default_factory=list)
    releases_gil: bool = False
    includes_kernels: bool = False  # uses lamina.h: small matrix products are written inline

    @property
    def flags(self) -> tuple[str, ...]:
        """Compiler flags of the unit. Every early return cleans up every owner: optimising a long function of that
        shape takes minutes and gains nothing, since its time is spent in the calls."""
        if self.includes_kernels:
            return ()
        return ("-O0",) if self.is_long else ("-O1",)

    @property
    def is_long(self) -> bool:
        return self.source.count("return 1;") > _LONG_RETURNS


class _Writer(Names):
    def __init__(
        self,
        program: GraphProgram,
        kernel_text: Callable[[KernelCall], str],
        lanes: int,
        more_sizes: Callable[[KernelCall], Sequence[str]],
        function: str = "lamina_run",
        places: _Places | None = None,
    ) -> None:
        self.more_sizes = more_sizes
        self.function = function
        self.places = places or _Places(program)
        self.layouts = {d.name: d.layout for d in program.buffers.values()}
        self.lanes = lanes
        self.program = program
        self.device = program.device.type
        self.kernel_text = kernel_text
        self.lines: list[Any] = []  # text, and CallBlocks until all is written
        self.indent = 1
        self.has_handle: set[str] = set()
        self.has_pointer: set[str] = set()
        self.owner: dict[str, str] = {}  # buffer -> name of the Tensor that owns its memory
        self.result = WrapperText("")
        self.temp_views = 0
        self.late: dict[str, list[tuple[str, int]]] = {}  # buffer -> size symbols that it decides, and their dimensions
        self.dropped: tuple[int, int, int] | None = None  # inputs let go of by the last line: first, last, its number

    # text -----------------------------------------------------------------------------------------------------

    def put(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def integer(self, e: Expr | int) -> str:
        return c_index(e, {})

    def _decl(self, name: str):
        return self.program.buffers[name]

    def _shape(self, layout: Layout) -> str:
        """Statements for sizes and strides of a layout, inside a block: arrays `z` and `t`."""
        z = ", ".join(self.integer(e) for e in layout.shape) or "0"
        t = ", ".join(self.integer(e) for e in layout.stride) or "0"
        return f"const i64 z[] = {{{z}}}, t[] = {{{t}}};"

    # pointers and handles ---------------------------------------------------------------------------------------

    def pointer(self, name: str) -> str:
        """C text of the buffer's data pointer, made now if need be."""
        d = self._decl(name)
        if d.kind in ("input", "constant") and name not in self.has_pointer:
            self.put(f"char* p_{_c(name)} = data({self._raw_handle(name)});")
            self.has_pointer.add(name)
        elif name not in self.has_pointer:
            self.put(f"p_{_c(name)} = data({self.handle(BufferRef(name))});")
            self.has_pointer.add(name)
        return f"p_{_c(name)}"

    def _raw_handle(self, name: str) -> str:
        d = self._decl(name)
        if d.kind == "input":
            return f"f->in[{d.index}]"
        if d.kind == "constant":
            return f"f->constants[{d.index}]"
        return f"h_{_c(name)}.h"

    def handle(self, ref: BufferRef) -> str:
        d = self._decl(ref.name)
        if d.kind not in ("input", "constant") and ref.name not in self.has_handle:
            layout = d.layout
            owner = self.owner.get(ref.name)
            if owner is not None:
                self.put(
                    f"{{ {self._shape(layout)} failed |= aoti_torch__alloc_from_pool({owner}.h, {self.integer(layout.offset * layout.itemsize)}, "  # noqa: E501
                    f"{dtype_code(layout.dtype)}, {len(layout.shape)}, z, t, &h_{_c(ref.name)}.h); }}"
                )
            else:
                self.put(
                    f"{{ {self._shape(layout)} failed |= aoti_torch_create_tensor_from_blob(p_{_c(ref.name)}, {len(layout.shape)}, z, t, "  # noqa: E501
                    f"{self.integer(layout.offset)}, {dtype_code(layout.dtype)}, {device_code(layout.device)}, &h_{_c(ref.name)}.h); }}"  # noqa: E501
                )
            self.has_handle.add(ref.name)
        base = self._raw_handle(ref.name)
        if ref.layout is None or ref.layout == d.layout:
            return base
        return self._view_of(base, ref.layout, d.layout)

    def _view_of(self, base: str, layout: Layout, of: Layout) -> str:
        if layout.dtype is not of.dtype:
            raise NoRoute("a view with another dtype")
        name = f"view_{self.temp_views}"
        self.temp_views += 1
        offset = self.integer(layout.offset - of.offset)
        self.put(f"Tensor {name}; {{ {self._shape(layout)} failed |= aoti_torch__reinterpret_tensor({base}, {len(layout.shape)}, z, t, {offset}, &{name}.h); }}")  # noqa: E501
        return f"{name}.h"

    def _forget(self, name: str) -> None:
        self.has_handle.discard(name)
        self.has_pointer.discard(name)
        self.owner.pop(name, None)

    # steps ------------------------------------------------------------------------------------------------------

    def write(self) -> WrapperText:
        program = self.program
        regions = "".join(self._region_function(c) for c in program.callees) if self.places.program is program else ""
        head = 'extern "C" int' if self.places.program is program else "static int"
        self.lines = [f"{head} {self.function}(LaminaFrame* f) {{", "  using namespace lg;", "  int failed = 0; (void)failed;"]  # noqa: E501
        for symbol, index, what, dim in program.sizes:
            if what == "int":
                self.put(f"const i64 {symbol} = f->ints[{index}];")
            else:
                self.put(f"const i64 {symbol} = {what}(f->in[{index}], {dim});")
        for s in program.steps:
            if isinstance(s, BindSize):
                self.late.setdefault(s.buffer, []).append((s.symbol, s.dim))
                self.put(f"i64 {s.symbol} = 0;")
            elif isinstance(s, ExternCall):
                for _, symbol in s.scalars:
                    self.put(f"i64 {symbol} = 0;")
        if program.arena_bytes:
            if program.device.type != "cpu":
                self.put(f"Tensor arena_; {{ const i64 z[] = {{{program.arena_bytes}}}, t[] = {{1}};")
                self.put(f"  failed = aoti_torch_empty_strided(1, z, t, 0, {device_code(program.device)}, &arena_.h); }}")  # noqa: E501
                self._fail_memory()
                self.put("char* const arena = data(arena_.h);")
            elif program.arena_bytes <= _STACK_ARENA:
                self.put(f"alignas(64) char arena[{program.arena_bytes}];")
            else:
                self.put(f"Arena arena_({program.arena_bytes}); char* const arena = (char*)arena_.p;")
                self.put('if (!arena) { f->error_kind = "MemoryError", f->error_text = "the intermediates do not fit into memory"; return 1; }')  # noqa: E501
        made = [d for d in program.buffers.values() if d.kind not in ("input", "constant")]
        place = len(self.lines)
        for d in made:
            if d.arena is not None:
                self.put(f"p_{_c(d.name)} = arena + {d.arena};")
                self.has_pointer.add(d.name)
        if any(isinstance(s, ExternCall) for s in program.steps):
            self.put("NoGrad no_grad;")
        kernels = 0
        ready = self._ready_outputs() if self.places.program is program else {}
        early: dict[int, tuple[str, Any]] = {}
        for position, s in enumerate(program.steps):
            if isinstance(s, Alloc):
                self._alloc(s.name)
            elif isinstance(s, Reuse):
                self._reuse(s)
            elif isinstance(s, View):
                self._view(s)
            elif isinstance(s, Free):
                self._free(s.name)
            elif isinstance(s, BindSize):
                self.put(f"{s.symbol} = size({self.handle(BufferRef(s.buffer))}, {s.dim});")
            elif isinstance(s, KernelCall):
                self._kernel(s, kernels)
                kernels += 1
            elif isinstance(s, ExternCall):
                if isinstance(s.target, RegionCallee):
                    self._region_call(s, position)
                else:
                    self._extern(s, self.places.take_number())
            else:
                raise TargetError(f"unknown step {s!r}")
            for k in ready.get(position, ()):
                name = program.outputs[k].name
                early[k] = self._output(k, program.outputs[k], {name: k}, set())
                self.put(f"h_{_c(name)}.reset();" + (f" m_{_c(name)}.reset();" if name in self.owner else ""))
                self.put(f"if (f->ready && f->ready(f, {k})) return 1;")
        self._outputs(early)
        fixed = not program.sizes and not self.late
        shared, self.lines = share_calls(self.lines, self.function, fixed)
        self.lines[place:place] = self._declarations(made, self.lines[place:])
        self.put("return 0;")
        self.lines.append("}")
        self.result.source = regions + shared + "\n".join(self.lines) + "\n"
        self.result.releases_gil = self._is_long()
        return self.result

    def _declarations(self, made: Sequence[BufferDecl], body: Sequence[str]) -> list[str]:
        """Owners and pointers of the buffers that the program makes: those that its text mentions."""
        used = set(_VARIABLE.findall("\n".join(body)))
        owners = [n for d in made for n in (f"m_{_c(d.name)}", f"h_{_c(d.name)}") if n in used]
        pointers = [p for d in made if (p := f"p_{_c(d.name)}") in used]
        lines = []
        if owners:  # one array: one loop cleans up at each return
            lines.append(f"Tensor owners[{len(owners)}];")
            lines.append("Tensor " + ", ".join(f"&{n} = owners[{k}]" for k, n in enumerate(owners)) + ";")
            lines.append(" ".join(f"(void){n};" for n in owners))
        if pointers:
            lines.append("char " + ", ".join(f"*{p} = nullptr" for p in pointers) + ";")
            lines.append(" ".join(f"(void){p};" for p in pointers))
        return ["  " + line for line in lines]

    def _is_long(self) -> bool:
        total = 0
        for d in self.program.buffers.values():
            n = d.layout.numel
            total += int(n) * d.layout.itemsize if n.is_const else _GIL_BYTES
        return total >= _GIL_BYTES

    def _alloc(self, name: str) -> None:
        layout = self._decl(name).layout
        c = _c(name)
        self.put(f"{{ {self._shape(layout)} failed = aoti_torch_empty_strided({len(layout.shape)}, z, t, {dtype_code(layout.dtype)}, {device_code(layout.device)}, &h_{c}.h); }}")  # noqa: E501
        self._fail_memory()
        self.put(f"p_{c} = data(h_{c}.h);")
        self.has_handle.add(name)
        self.has_pointer.add(name)

    def _fail_memory(self) -> None:
        self.put('if (failed) { f->error_kind = "MemoryError", f->error_text = "an allocation failed"; return 1; }')

    def _reuse(self, s: Reuse) -> None:
        new, old = _c(s.name), _c(s.old)
        d = self._decl(s.old)
        self.put(f"p_{new} = {self.pointer(s.old)};")
        self.has_pointer.add(s.name)
        if d.kind in ("input", "constant"):
            layout = self._decl(s.name).layout
            if layout.dtype is not d.layout.dtype:
                raise TargetError("an input's memory cannot be taken over with another dtype", node=s.name)
            self.put(f"{{ {self._shape(layout)} failed |= aoti_torch__reinterpret_tensor({self._raw_handle(s.old)}, {len(layout.shape)}, z, t, 0, &h_{new}.h); }}")  # noqa: E501
            self.has_handle.add(s.name)
            return
        if s.old in self.owner:
            self.put(f"m_{new}.take({self.owner[s.old]}); h_{old}.reset();")
            self.owner[s.name] = f"m_{new}"
        elif s.old in self.has_handle and d.arena is None:
            same = self._decl(s.name).layout
            if same.dtype is d.layout.dtype and same.shape == d.layout.shape and same.stride == d.layout.stride:
                self.put(f"h_{new}.take(h_{old});")
                self.has_handle.add(s.name)
            else:
                self.put(f"m_{new}.take(h_{old});")
                self.owner[s.name] = f"m_{new}"
        self._forget(s.old)

    def _view(self, s: View) -> None:
        layout, base = self._decl(s.name).layout, self._decl(s.base).layout
        c = _c(s.name)
        if s.base in self.has_pointer or self._decl(s.base).kind in ("input", "constant"):
            self.put(f"p_{c} = {self.pointer(s.base)} + {self.integer((layout.offset) * layout.itemsize)};")
            self.has_pointer.add(s.name)
        if layout.dtype is base.dtype:
            h = self.handle(BufferRef(s.base))
            self.put(f"{{ {self._shape(layout)} failed |= aoti_torch__reinterpret_tensor({h}, {len(layout.shape)}, z, t, {self.integer(layout.offset)}, &h_{c}.h); }}")  # noqa: E501
            self.has_handle.add(s.name)
        else:
            h = self.handle(BufferRef(s.base))
            self.put(
                f"{{ {self._shape(layout)} failed |= aoti_torch__alloc_from_pool({h}, {self.integer(layout.offset * layout.itemsize)}, "  # noqa: E501
                f"{dtype_code(layout.dtype)}, {len(layout.shape)}, z, t, &h_{c}.h); }}"
            )
            self.has_handle.add(s.name)

    def _free(self, name: str) -> None:
        d = self._decl(name)
        if d.kind == "input":
            if name in self.has_pointer:
                self.has_pointer.discard(name)
            self._drop_input(d.index)
            return
        if d.kind == "constant" or d.arena is not None:
            return
        own = f" m_{_c(name)}.reset();" if name in self.owner else ""
        self.put(f"h_{_c(name)}.reset();{own}")
        self._forget(name)

    def _drop_input(self, index: int) -> None:
        """Lets go of a graph input; of neighbours at once, since a model's parameters are many."""
        first = index
        if self.dropped is not None and self.dropped[1] == index - 1 and self.dropped[2] == len(self.lines):
            first = self.dropped[0]
            self.lines.pop()
        self.put(f"drop(f, {first}, {index});" if first < index else f"f->drop(f, {index});")
        self.dropped = (first, index, len(self.lines))

    def _kernel(self, s: KernelCall, number: int) -> None:
        pointers = [self.pointer(a) for a in s.args]
        sizes = [self.integer(e) for e in s.sizes] + list(self.more_sizes(s))
        buffers = ", ".join(pointers) or "nullptr"
        call = f"{self.kernel_text(s)}(b, s)"
        self.put(f"{{ void* const b[] = {{{buffers}}}; const i64 s[] = {{{', '.join(sizes) or '0'}}};")
        if s.kernel.messages:
            self.put(f"  const int bad = {call};")
            self.put("  if (bad) {")
            self.put("    if (f->error_kind) return 1;  // it could not be started, for the reason given there")
            self.put("    static const char* const kinds[] = {" + ", ".join(_quote(k) for k, _ in s.kernel.messages) + "};")  # noqa: E501
            self.put("    static const char* const texts[] = {" + ", ".join(_quote(t) for _, t in s.kernel.messages) + "};")  # noqa: E501
            self.put("    f->error_kind = kinds[bad - 1], f->error_text = texts[bad - 1];")
            self.put("    return 1;")
            self.put("  }")
            self.put("}")
        elif self.device != "cpu":  # a launch may fail, or refuse its operands
            self.put(f"  if ({call}) return 1;")
            self.put("}")
        else:
            self.put(f"  {call};")
            self.put("}")

    def _extern(self, s: ExternCall, number: int) -> None:
        outs: list[str | None] = []
        out_handle = None
        if self.lanes and self.program.device.type == "cpu":
            inline = write_small_gemm(s, self.layouts, self.pointer, self.lanes)
            if inline is not None:
                self.put(inline)
                self.result.routes.append((str(s.target), "inline", ""))
                self.result.includes_kernels = True
                return
        if s.out and s.outputs[0] is not None:
            out_handle = self.handle(BufferRef(s.outputs[0]))
            outs = [None]
        else:
            outs = [None if o is None else f"&h_{_c(o)}.h" for o in s.outputs]
        plan = ExternPlan("python")
        outer, self.lines = self.lines, []
        self.indent += 1
        self.put("failed = 0;")
        try:
            plan = plan_extern(s, self, outs, out_handle)
        except NoRoute as e:
            plan = ExternPlan("python", python=python_call(s)[0], why=str(e))
        for line in plan.lines:
            self.put(line)
        if plan.route == "python":
            self._python_extern(s, plan, outs)
        self._settle(s)
        if plan.route != "python":
            self._failure(s)
        elif not s.out:
            self.put(f"if (failed) {{ f->failed_step = {NUMBER}; return 1; }}")
        self.result.routes.append((str(s.target), plan.route, plan.why))
        self.result.callbacks.setdefault(number, (plan.python or python_call(s)[0], len(s.outputs)))
        self.result.calls[number] = s
        self.indent -= 1
        outer.append(CallBlock(self.lines, number, "  " * self.indent))
        self.lines = outer
        for o in s.outputs:
            if o is not None and not s.out:
                self.has_handle.add(o)

    def _failure(self, s: ExternCall) -> None:
        """A call that failed is made once more from Python, whose exception has its real type."""
        before = set(self.has_handle)
        self.put("if (failed) {")
        try:
            _, tensors, ints = python_call(s)
            handles = [self.handle(t) for t in tensors]
            self.put(f"  void* again[] = {{{', '.join(handles) or 'nullptr'}}}; const i64 ints[] = {{{', '.join(map(self.integer, ints)) or '0'}}};")  # noqa: E501
            n = 0 if s.out else len(s.outputs) + len(s.scalars)
            self.put(f"  fail_again(f, {NUMBER}, again, {len(tensors)}, ints, {len(ints)}, {n}); return 1;")
        except NoRoute:
            self.put(f"  f->failed_step = {NUMBER}; return 1;")
        self.put("}")
        self.has_handle = before

    def _settle(self, s: ExternCall) -> None:
        """Holds an operator's new results to the layouts that the program counts on. Metadata come from shape rules;
        a kernel that answers in another layout or dtype would otherwise be read wrongly."""
        if s.out:
            return
        for name in s.outputs:
            if name is None:
                continue
            layout, c = self._decl(name).layout, _c(name)
            for symbol, dim in self.late.get(name, ()):  # what the BindSize steps behind this call will say
                self.put(f"if (!failed) {symbol} = size(h_{c}.h, {dim});")
            try:
                code = dtype_code(layout.dtype)
            except NoRoute:
                code = -1
            self.put(f"if (!failed) {{ {self._shape(layout)} failed = settle(h_{c}, {code}, {device_code(layout.device)}, {len(layout.shape)}, z, t, f); }}")  # noqa: E501

    def _region_function(self, callee: RegionCallee) -> str:
        function = self.places.names[callee]
        writer = _Writer(callee.program, self.kernel_text, self.lanes, self.more_sizes, function, self.places)
        text = writer.write()
        self.result.callbacks.update(text.callbacks)
        self.result.calls.update(text.calls)
        self.result.routes.extend(text.routes)
        self.result.includes_kernels |= text.includes_kernels
        return text.source

    def _region_call(self, s: ExternCall, position: int) -> None:
        """Calls a region; what dies with the call dies inside, as soon as the region is done with it."""
        callee: RegionCallee = s.target  # type: ignore[assignment]
        dying = set()
        for after in self.program.steps[position + 1 :]:
            if not isinstance(after, Free):
                break
            dying.add(after.name)
        names = [a.name for a in s.args]
        self.put("{")
        self.indent += 1
        handles = [self.handle(a) for a in s.args]
        drops = []
        for a in s.args:
            d = self._decl(a.name)
            if a.name not in dying or names.count(a.name) > 1 or a.layout not in (None, d.layout):
                drops.append("{-1, nullptr}")
            elif d.kind == "input":
                drops.append(f"{{{d.index}, nullptr}}")
            elif d.arena is None and a.name not in self.owner:
                drops.append(f"{{-1, &h_{_c(a.name)}}}")
            else:
                drops.append("{-1, nullptr}")
        n = len(s.outputs)
        self.put(f"void* args[] = {{{', '.join(handles) or 'nullptr'}}}; void* results[{n or 1}] = {{}};")
        self.put(f"const Drop drops[] = {{{', '.join(drops) or '{-1, nullptr}'}}};")
        self.put(f"Region region(f, args, results, {self.places.constants[callee]}, drops);")
        self.put(f"if ({self.places.names[callee]}(&region)) {{ region.fail({n}); return 1; }}")
        for k, (o, result) in enumerate(zip(s.outputs, callee.program.outputs, strict=True)):
            if result.kind == "none" or o is None:
                self.put(f"if (results[{k}]) aoti_torch_delete_tensor_object(results[{k}]);")
                continue
            if result.kind == "input":
                self.put(f"aoti_torch_new_tensor_handle(args[{result.index}], &results[{k}]);")
            self.put(f"h_{_c(o)}.h = results[{k}];")
            self.has_handle.add(o)
        self.indent -= 1
        self.put("}")

    def _python_extern(self, s: ExternCall, plan: ExternPlan, outs: list[str | None]) -> None:
        run, tensors, ints = python_call(s)
        plan.python = run
        handles = [self.handle(t) for t in tensors]
        n = 0 if s.out else len(s.outputs) + len(s.scalars)
        self.put(f"void* tensors[] = {{{', '.join(handles) or 'nullptr'}}}; const i64 ints[] = {{{', '.join(map(self.integer, ints)) or '0'}}};")  # noqa: E501
        self.put(f"void* outs[{n or 1}] = {{}}; i64 numbers[{n or 1}] = {{}};")
        self.put(f"if (f->python(f, {NUMBER}, tensors, {len(tensors)}, ints, {len(ints)}, outs, numbers, {n})) return 1;")  # noqa: E501
        if s.out:
            return
        scalars = dict(s.scalars)
        for k, o in enumerate(s.outputs):
            if k in scalars:
                self.put(f"{scalars[k]} = numbers[{k}];")
            elif o is not None:
                self.put(f"h_{_c(o)}.reset(); h_{_c(o)}.h = outs[{k}];")
            else:
                self.put(f"if (outs[{k}]) aoti_torch_delete_tensor_object(outs[{k}]);")
        for k, symbol in s.scalars:
            if k >= len(s.outputs):
                self.put(f"{symbol} = numbers[{k}];")

    def _ready_outputs(self) -> dict[int, list[int]]:
        """Position of a step -> the large results that are complete behind it and that nothing reads afterwards: a
        caller who adds gradients up takes them there, so that they are not all alive at the end."""
        program = self.program
        names = [o.name for o in program.outputs if o.kind in ("buffer", "view")]
        wanted = {}
        for k, o in enumerate(program.outputs):
            d = program.buffers.get(o.name)
            if program.device.type != "cpu" or o.kind != "buffer" or names.count(o.name) > 1 or d is None:
                continue
            size = d.layout.numel * d.layout.itemsize
            if d.kind == "output" and size.is_const and int(size) >= _EARLY_BYTES:
                wanted[o.name] = k
        last: dict[str, int] = {}
        for position, s in enumerate(program.steps):
            for name in _mentioned(s):
                if name in wanted:
                    last[name] = position
            if isinstance(s, View):
                wanted.pop(s.base, None)
        ready: dict[int, list[int]] = {}
        for name, k in wanted.items():
            if name in last:
                ready.setdefault(last[name], []).append(k)
        return ready

    def _outputs(self, early: dict[int, tuple[str, Any]]) -> None:
        seen: set[str] = set()
        last = {o.name: k for k, o in enumerate(self.program.outputs) if o.kind in ("buffer", "view")}
        for k, o in enumerate(self.program.outputs):
            self.result.outputs.append(early[k] if k in early else self._output(k, o, last, seen))

    def _output(self, k: int, o: Output, last: dict[str, int], seen: set[str]) -> tuple[str, Any]:
        if o.kind == "none":
            return "python", None
        if o.kind == "input":
            return "input", o.index
        if o.kind == "scalar":
            if isinstance(o.value, Expr):
                self.put(f"f->out_ints[{k}] = {self.integer(o.value)};")
                return "int", k
            return "python", o.value
        d = self._decl(o.name)
        h = self.handle(BufferRef(o.name))
        layout = o.layout
        differs = layout is not None and not (
            layout.dtype is d.layout.dtype
            and len(layout.shape) == len(d.layout.shape)
            and layout.shape == d.layout.shape
            and same_strides(layout.shape, layout.stride, d.layout.stride)
            and layout.stride == d.layout.stride
            and to_expr(layout.offset) == to_expr(d.layout.offset)
        )
        if differs:
            offset = self.integer(layout.offset - (0 if d.kind in ("input", "constant") else d.layout.offset))
            self.put(f"{{ {self._shape(layout)} failed |= aoti_torch__reinterpret_tensor({h}, {len(layout.shape)}, z, t, {offset}, &f->out[{k}]); }}")  # noqa: E501
        elif d.kind in ("input", "constant") or last[o.name] != k:
            self.put(f"failed |= aoti_torch_new_tensor_handle({h}, &f->out[{k}]);")
        else:
            self.put(f"f->out[{k}] = h_{_c(o.name)}.release();")
        seen.add(o.name)
        return "tensor", k


def _mentioned(step: Any) -> list[str]:
    """The buffers that a step names."""
    if isinstance(step, KernelCall):
        return [*step.args, *(step.in_place or ())]
    if isinstance(step, ExternCall):
        found = [o for o in step.outputs if o is not None]
        stack: list[Any] = [step.args, step.kwargs]
        while stack:
            a = stack.pop()
            if isinstance(a, BufferRef):
                found.append(a.name)
            elif isinstance(a, (tuple, list)):
                stack.extend(a)
            elif isinstance(a, dict):
                stack.extend(a.values())
        return found
    if isinstance(step, Reuse):
        return [step.name, step.old]
    if isinstance(step, View):
        return [step.name, step.base]
    return [step.buffer if isinstance(step, BindSize) else step.name]


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _c(name: str) -> str:
    return "".join(ch if ch.isalnum() or ch == "_" else "_" for ch in name)


def write_wrapper(
    program: GraphProgram,
    kernel_text: Callable[[KernelCall], str],
    lanes: int = 0,
    more_sizes: Callable[[KernelCall], Sequence[str]] = lambda call: (),
) -> WrapperText:
    """The function `lamina_run` of `program`. `kernel_text(call)` names the C function (or pointer) of a kernel
    call, `more_sizes(call)` gives C text of arguments behind the kernel's size symbols. `lanes`: floats in a vector
    register, for matrix products that are written inline; 0: none are. A long function with few of them has
    none either: it could not be compiled quickly then."""
    text = _Writer(program, kernel_text, lanes, more_sizes).write()
    inline = sum(1 for _, route, _ in text.routes if route == "inline")
    if inline and text.is_long and inline * _FEW_INLINE < len(text.routes):
        return _Writer(program, kernel_text, 0, more_sizes).write()
    return text


__all__ = ["WrapperText", "write_wrapper"]
