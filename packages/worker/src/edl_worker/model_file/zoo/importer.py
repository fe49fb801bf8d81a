"""Imports the modules of a model zoo, separate from installed packages.

A zoo is a plain folder of Python files. ``regressor.wide_and_deep`` names
``regressor/wide_and_deep.py`` in it, and ``regressor`` names ``regressor.py`` or
``regressor/__init__.py``. If ``regressor.py`` is next to a folder ``regressor``, it is that
folder's package. Code of the zoo prefers the zoo's modules to installed ones of the same name. All
other code gets the installed ones.
"""

from __future__ import annotations

import builtins
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.module_loaders import FolderLoader, ZooModuleLoader
from edl_worker.model_file.zoo.outside_files import note_imported

# Suffix for a top-level module with the name of an installed package.
_ALIAS = "_of_model_zoo"
_MAX_SUGGESTIONS = 400
_ROOT_OF_ELASTICDL = "model_zoo"  # what files of ElasticDL call the folder, whatever its name


class ModelZoo(MetaPathFinder):
    """The modules below one folder.

    Only one zoo is open in a process. Opening another one drops the modules of the first, so that
    a model file that is loaded twice is executed twice.
    """

    _open: ModelZoo | None = None

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[str, str] = {}  # imported top-level name -> the zoo's

    @classmethod
    def open(cls, root: Path) -> ModelZoo:
        if cls._open is not None:
            cls._open._close()
        zoo = cls(root)
        sys.meta_path.insert(0, zoo)
        if (shelf := compatibility.shelf()) is not None:
            shelf.serve_modules()
        cls._open = zoo
        importlib.invalidate_caches()
        return zoo

    def _close(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name, module in list(sys.modules.items()):
            if isinstance(getattr(module, "__loader__", None), ZooModuleLoader | FolderLoader):
                del sys.modules[name]

    def locate(self, dotted: str) -> Path | None:
        """Return the file of a module, a folder without ``__init__.py``, or None."""
        place = self.root.joinpath(*dotted.split("."))
        for candidate in (place / "__init__.py", place.with_name(place.name + ".py")):
            if candidate.is_file():
                return candidate
        return place if dotted and place.is_dir() else None

    def load(self, dotted: str) -> ModuleType:
        """Import a module of the zoo. Raises: BaseException: whatever the module raises."""
        top, _, rest = dotted.partition(".")
        name = self._imported_name(top)
        return importlib.import_module(f"{name}.{rest}" if rest else name)

    def modules(self) -> Iterator[str]:
        """Yield dotted names of modules for suggestions, not complete in a very large folder."""
        for count, path in enumerate(self._sources(self.root, depth=4)):
            if count >= _MAX_SUGGESTIONS:
                return
            parts = path.relative_to(self.root).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            if parts:
                yield ".".join(parts)

    def nearest(self, dotted: str) -> list[str]:
        return difflib.get_close_matches(dotted, sorted(set(self.modules())), n=3, cutoff=0.5)

    def contains(self, module: ModuleType | None) -> bool:
        return isinstance(getattr(module, "__loader__", None), ZooModuleLoader)

    # The interface of importlib.

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top not in self._names:
            if rest or self.locate(top) is None or _is_installed(top, self.root):
                return None
            self._names[top] = top
        dotted = ".".join(filter(None, (self._names[top], rest)))
        place = self.locate(dotted)
        if place is None:
            return None
        folder = self.root.joinpath(*dotted.split("."))
        if place.is_dir():
            spec = ModuleSpec(fullname, FolderLoader(), is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
        is_package = place.name == "__init__.py" or folder.is_dir()
        return importlib.util.spec_from_file_location(
            fullname,
            place,
            loader=ZooModuleLoader(fullname, str(place), self.import_for, dotted, is_package),
            submodule_search_locations=[str(folder)] if is_package else None,
        )

    def _imported_name(self, top: str) -> str:
        for name, own in self._names.items():
            if own == top:
                return name
        name = f"{top}{_ALIAS}" if _is_installed(top, self.root) else top
        self._names[name] = top
        return name

    def _sources(self, folder: Path, depth: int) -> Iterator[Path]:
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            return
        for entry in entries:
            if entry.suffix == ".py":
                yield entry
            elif depth > 1 and entry.name.isidentifier() and entry.is_dir():
                yield from self._sources(entry, depth - 1)

    # The meaning of `import` in a module of the zoo.

    def import_for(
        self,
        importer: str,
        package: str,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Do what ``builtins.__import__`` does, for the module ``importer`` of ``package``."""
        target = self._resolve(importer, package, name, level)
        if target is None and fromlist and level == 0 and (old := _old_module(name)):
            return old
        if target is None:
            found = builtins.__import__(name, globals, locals, fromlist or (), level)
            note_imported(name)
            return found
        module = self.load(target) if target else _ZooRoot(self)
        if not fromlist:
            top = name.partition(".")[0]
            return self.load(top) if self.locate(top) else _ZooRoot(self)
        for item in fromlist:
            inner = f"{target}.{item}" if target else item
            if item != "*" and not hasattr(module, item) and self.locate(inner):
                setattr(module, item, self.load(inner))
        return module

    def _resolve(self, importer: str, package: str, name: str, level: int) -> str | None:
        """Return the module of the zoo, "" for the zoo itself, None for an installed module."""
        if level:
            parts = package.split(".") if package else []
            if level - 1 > len(parts):
                raise ImportError(
                    f"relative import of {'.' * level}{name} leads out of the model zoo "
                    f"{self.root}; give the folder above as --model-zoo"
                )
            base = parts[: len(parts) - (level - 1)]
            return ".".join([*base, *filter(None, [name])])
        top, _, rest = name.partition(".")
        place = self.locate(name)
        if place is not None and place.is_file():
            shadows_itself = name == importer and _is_installed(top, self.root)
            return None if shadows_itself else name
        if self.locate(top) is not None:
            return None if _is_installed(top, self.root) else name
        if top == _ROOT_OF_ELASTICDL and self.locate(rest):
            return rest
        if top == self.root.name and (not rest or self.locate(rest)):
            return None if _is_installed(top, self.root) else rest
        return None


def loaded_files() -> list[Path]:
    """Return the files of all modules that were imported from the open zoo."""
    loaders = [getattr(module, "__loader__", None) for module in list(sys.modules.values())]
    return [Path(it.path) for it in loaders if isinstance(it, ZooModuleLoader)]


class _ZooRoot(ModuleType):
    """The zoo's folder itself, in ``from . import x`` of a top-level module."""

    def __init__(self, zoo: ModelZoo) -> None:
        super().__init__(zoo.root.name)
        self.__dict__["_zoo"] = zoo

    def __getattr__(self, name: str) -> Any:
        zoo: ModelZoo = self.__dict__["_zoo"]
        if not name.startswith("__") and zoo.locate(name):
            return zoo.load(name)
        own = zoo.root / "__init__.py"
        if own.is_file() and not name.startswith("__"):
            if "__init__" not in self.__dict__:
                self.__dict__["__init__"] = zoo.load("__init__")
            return getattr(self.__dict__["__init__"], name)
        raise AttributeError(f"the model zoo {zoo.root} has no {name!r}")


def _is_installed(top: str, root: Path) -> bool:
    """Whether a module outside ``root`` has this top-level name."""
    module = sys.modules.get(top)
    if module is not None and not isinstance(
        getattr(module, "__loader__", None), ZooModuleLoader | FolderLoader
    ):
        return True
    for finder in sys.meta_path:
        if isinstance(finder, ModelZoo) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(top, None)
        if spec is None:
            continue
        places = [spec.origin] if spec.has_location else spec.submodule_search_locations or []
        inside = [place and Path(place).resolve().is_relative_to(root) for place in places or [""]]
        if not all(inside):
            return True
    return False


def _old_module(name: str) -> ModuleType | None:
    """Return what a model file gets for a module that exists and does not work any more."""
    shelf = compatibility.shelf()
    return None if shelf is None else shelf.old_module(name)
