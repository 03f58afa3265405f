"""torch, imported when something of it is first used.

torch takes longer to import than most questions take to answer. Modules that are also needed
without it, such as leaves, whose masses and moments are numpy, take it from here; whatever cannot
do without imports it at its head.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING


class Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch as torch
else:
    torch = Deferred("torch")
