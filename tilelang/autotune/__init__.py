"""Choosing a config: predicted times (`model`), trials of configs, and the file of choices."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NoReturn

from ..errors import CallError
from ..instead import OF_PACKAGE


class _NoDecorator(ModuleType):
    """Two other packages have a decorator of this name, and it is a package here."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise CallError("tile.autotune is no decorator", hint=OF_PACKAGE["autotune"])


sys.modules[__name__].__class__ = _NoDecorator
