"""Every opcode of the running CPython is translated, or is one of the few that are left to eager by name."""

from __future__ import annotations

import dis

from lamina_dynamo.translator.opcodes import UNTRANSLATED, Opcodes


def test_every_opcode_is_accounted_for():
    missing = [
        name
        for name, code in dis.opmap.items()
        if code < 256
        and not name.startswith("INSTRUMENTED")
        and name not in UNTRANSLATED
        and not hasattr(Opcodes, name)
    ]
    assert not missing
