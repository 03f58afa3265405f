"""All messages of the library: under which tag, with which fields, and what their class reveals.

``python -m tests.methods.inventory`` writes inventory.txt anew, which tests compare with the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import fedcircuits as fc
from fedcircuits.federation.messages import Message

INVENTORY = Path(__file__).with_name("inventory.txt")


def declared() -> list[str]:
    """One line for every kind of message."""
    root = Path(fc.__file__).parent
    for room in ("federation", "privacy", "methods"):
        for path in sorted((root / room).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            import_module("fedcircuits." + ".".join(parts).removesuffix(".__init__"))
    kinds = {k for k in _below(Message) if k.__module__.startswith("fedcircuits.")}
    return sorted(_line(k) for k in kinds if ".testing." not in k.__module__)


def _line(kind: type[Message]) -> str:
    fields = ", ".join(kind.__struct_fields__)
    return f"{kind.tag or '(any)'} {kind.__name__}({fields}): {kind.reveals or '(as sent)'}"


def _below(kind: type[Message]) -> Iterator[type[Message]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


if __name__ == "__main__":
    INVENTORY.write_text("\n".join(declared()) + "\n", encoding="utf-8")
