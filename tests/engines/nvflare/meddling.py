"""What a curious server and a lying client would change in their own NVFlare, for tests.

Python loads a module ``sitecustomize`` at its start; these are two of them.
"""

from __future__ import annotations

from pathlib import Path

CURIOUS = """
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
forward = CoreCell._forward
def noting(self, endpoint, origin, destination, msg_type, message):
    with open({path!r}, "ab") as file:
        file.write(bytes(message.payload or b"") + repr(message.headers).encode())
    return forward(self, endpoint, origin, destination, msg_type, message)
CoreCell._forward = noting
"""
LYING = """
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
send = CoreCell._send_to_endpoint
def lying(self, endpoint, message):
    if isinstance(message.payload, bytes) and message.payload == {packet!r}:
        own = message.get_header(Key.ORIGIN)
        message.set_header(Key.ORIGIN, {name!r} + own[own.index("."):])
    return send(self, endpoint, message)
CoreCell._send_to_endpoint = lying
"""


def module_path(folder: Path, text: str, path: str) -> str:
    """PYTHONPATH of a program that loads the text first."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(text)
    return f"{folder}:{path}"
