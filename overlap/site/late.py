"""Modules that are imported when something of them is first asked for."""

import importlib
import sys
from types import ModuleType


def late(name: str) -> None:
    """Let `import` of this module cost nothing, until an attribute of it is used. Where it is imported already, nothing happens."""
    if name not in sys.modules:
        sys.modules[name] = _Late(name)


class _Late(ModuleType):
    def __getattr__(self, attribute: str):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), attribute)
