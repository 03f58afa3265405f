"""torch, imported on first use.

Importing torch takes longer than answering most queries. Modules that are also needed without
it, such as leaves, whose masses and moments use numpy, import it from here; modules that always
need it import it directly.
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
