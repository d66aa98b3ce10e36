"""The only place where a graph break is made, and the table of its kinds.

Two signals leave an opcode handler other than by returning:

``GraphBreak``          translation cannot go on past this instruction; it runs in eager
``ObservedException``   the *traced program* raises; its ``vt`` models the exception object
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class BreakKind:
    """One row: why capture stops, in words the user understands, and what to change."""

    id: str
    explanation: str
    hint: str
    anchor: str = ""

    @property
    def docs_anchor(self) -> str:
        return self.anchor or "break-" + self.id.replace("_", "-")


KINDS: dict[str, BreakKind] = {}


def _kind(id: str, explanation: str, hint: str) -> None:
    if id in KINDS:
        raise ValueError(f"graph break kind {id!r} declared twice")
    KINDS[id] = BreakKind(id, explanation, hint)


_REWRITE = "Move this out of the compiled region, or write it with plain Python and torch operations."
_VALUE = "Keep the value in a tensor (torch.where, masking), or compute it outside the compiled region."

_kind("user_request", "graph_break() was called.", "Remove the call to graph_break().")
_kind("opcode", "This bytecode instruction is not translated.", _REWRITE)
_kind("data_dependent_branch", "Control flow depends on a tensor's value.", _VALUE)
_kind("data_dependent_scalar", "A tensor's value is read as a Python number.", _VALUE)
_kind("data_dependent_shape", "The shape of a result depends on tensor values.", _VALUE)
_kind(
    "skipped_callable", "The called function is excluded from capture.", "Remove the disable() mark or call it outside."
)
_kind("unknown_builtin", "A function implemented in C is called that capture has no model of.", _REWRITE)
_kind("unknown_call", "An object is called in a way that capture has no model of.", _REWRITE)
_kind("unknown_object", "An object of this type is used in a way that capture has no model of.", _REWRITE)
_kind("unknown_attribute", "This attribute of the object cannot be followed.", _REWRITE)
_kind("not_graph_argument", "A value of this type cannot be an argument of a graph node.", _REWRITE)
_kind(
    "torch_call_failed", "The torch call failed on the tensors' metadata.", "Check shapes and dtypes of the arguments."
)
_kind("torch_unsupported", "This torch function cannot be part of a graph.", _REWRITE)
_kind(
    "autograd_call",
    "This call of autograd cannot be part of a graph; the reason says why.",
    "Call backward() outside the compiled function, or remove what the reason names (hooks with effects, try blocks).",
)
_kind("higher_order", "The function given to this torch call cannot be a graph of its own.", _REWRITE)
_kind("tensor_attribute", "This tensor attribute cannot be followed.", _REWRITE)
_kind("tensor_subclass", "A tensor subclass that capture has no model of.", _REWRITE)
_kind(
    "lazy_module",
    "A lazy module gets its parameters in its first call, which runs in eager.",
    "Nothing: calls after the first are captured. To have all captured, call the module once before it is compiled.",
)
_kind(
    "sparse_or_nested",
    "Sparse, nested and quantized tensors are left to eager.",
    "Use strided tensors of plain numbers in the compiled region.",
)
_kind("generator_escapes", "A partly run generator leaves the region.", "Consume the generator inside the region.")
_kind("coroutine", "Coroutines and async generators are left to eager.", _REWRITE)
_kind("exception_escapes", "An exception leaves the frame.", "Handle the exception inside the region.")
_kind("recursion", "Inlining got too deep.", "Make the recursion shallower, or call it outside the region.")
_kind("side_effect", "This change to outside state cannot be delayed to the end of the graph.", _REWRITE)
_kind("long_loop", "A loop runs for too many instructions to be followed.", "Run the loop outside the region.")
_kind("reconstruct", "A value that is live at a break cannot be rebuilt from bytecode.", _REWRITE)
_kind("context_manager", "This context manager cannot be followed.", _REWRITE)
_kind("import", "An import with effects inside the region.", "Import at the top of the module.")
_kind("frame_access", "The program looks at its own frame, locals or stack.", _REWRITE)
_kind("dynamic_shape", "A symbolic size is used where a plain number is needed.", "mark_static the dimension.")
_kind("random_state", "The state of a random generator is read or set.", _REWRITE)
_kind(
    "random_draw",
    "A random number of Python or numpy that must be known here, or is drawn in a way that capture cannot repeat.",
    "Draw it outside the compiled region and pass it in, or use torch's own random functions.",
)
_kind("hook", "This tensor or module hook cannot be captured.", "Register the hook outside the compiled region.")
_kind(
    "module_hook",
    "Hooks of modules are registered here, or backward hooks of a module run, which look at autograd's own nodes.",
    "Register hooks outside the compiled region; in place of a module's backward hook use register_hook of a tensor.",
)
_kind("forward_ad", "Dual tensors of forward-mode differentiation.", "Use torch.func.jvp, which is captured.")
_kind("torch_function_mode", "A torch function or dispatch mode is active.", "Use the mode outside the region.")
_kind("not_a_constant", "A value must be known during translation and is not.", _REWRITE)
_kind("unsupported_builtin_method", "A method of a builtin type that capture has no model of.", _REWRITE)
_kind("bad_builtin_arguments", "A builtin is called with arguments that eager rejects.", "Check the arguments.")
_kind("fold_too_large", "The result of this operation on constants would be huge.", _REWRITE)
_kind("class_statement", "A class made inside the region needs something capture cannot build.", "Define it outside.")
_kind("descriptor", "A descriptor implemented in C that capture has no model of.", _REWRITE)
_kind("print", "print() needs a value that only exists after the graph ran.", "Print outside the compiled region.")
_kind("object_identity", "id() or an address of an object is read.", "Compare objects with `is` instead of id().")
_kind("unordered_set", "A set of objects without a fixed order comes from outside.", "Use a list or a dict instead.")
_kind("weak_reference", "The program looks at when an object dies.", _REWRITE)
_kind("copying", "This object cannot be copied during translation.", _REWRITE)
_kind("thread_local", "Thread-local state is changed.", _REWRITE)
_kind(
    "lock",
    "A lock is taken or released: what the region reads must be read behind that, and guards are checked before it.",
    "Take the lock outside the compiled region, around its call.",
)
_kind("file_or_system", "The program reads or changes the system outside Python.", "Do it outside the compiled region.")
_kind(
    "outside_iterator",
    "An iterator made outside the region is advanced inside it.",
    "Make the iterator inside the region.",
)
_kind("internal", "Capture met a case it has no code for.", "Please report it; the instruction ran in eager.")


class GraphBreak(Exception):
    """Translation stops before the current instruction. ``kind`` is a row of ``KINDS``, ``detail`` what was met."""

    def __init__(self, kind_id: str, /, **detail: Any):
        self.kind = KINDS.get(kind_id) or BreakKind(kind_id, kind_id.replace("_", " ").capitalize() + ".", _REWRITE)
        self.detail = detail
        self.user_stack: list[Any] = []
        self.whole = False
        text = ", ".join(f"{k}={v}" for k, v in detail.items())
        super().__init__(f"{self.kind.explanation} ({text})" if text else self.kind.explanation)


class ObservedException(Exception):
    """The traced program raises. ``vt`` is the variable tracker of the exception object."""

    def __init__(self, vt: Any):
        super().__init__(vt)
        self.vt = vt

    def matches(self, types: type | tuple[type, ...]) -> bool:
        """Would ``except types`` of the traced program catch this?"""
        return issubclass(self.vt.python_type(), types)


def leave_whole(kind_id: str, /, **detail: Any) -> NoReturn:
    """Break the graph, and leave the frame to eager as a whole: code generated for a part of it would change what the
    program sees.
    """
    broken = GraphBreak(kind_id, **detail)
    broken.whole = True
    raise broken


def graph_break(kind_id: str, /, **detail: Any) -> NoReturn:
    """Break the graph here; see ``KINDS`` for the ids."""
    raise GraphBreak(kind_id, **detail)


__all__ = ["KINDS", "BreakKind", "GraphBreak", "ObservedException", "graph_break", "leave_whole"]


def render_table() -> str:
    """The table of kinds as Markdown: the text of docs/graph_breaks.md."""
    lines = [
        "# Graph breaks",
        "",
        "Every graph break has one of these kinds. `explain`, `capture`, the logs and `GraphBreakError` name the kind,",
        "the line of your program and the hint. This page is made from the table in `lamina_dynamo.graph_break`:",
        "`python -m lamina_dynamo.graph_break > docs/graph_breaks.md`.",
        "",
        "| kind | what it means | what to change |",
        "|---|---|---|",
    ]
    for kind in KINDS.values():
        lines.append(f'| <a id="{kind.docs_anchor}"></a>`{kind.id}` | {kind.explanation} | {kind.hint} |')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render_table(), end="")
