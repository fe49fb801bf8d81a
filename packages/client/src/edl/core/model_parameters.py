"""The parameters that a model accepts, as far as the source of its files shows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edl.core.parameter_values import Parameter, parameters_of

# What a model file may also define without a function of its own: a name of another library, whose
# parameters only a worker can see.
_ROLES = ("loss", "optimizer", "metrics", "input", "dataset", "callbacks", "feed")


def parameters(
    module: str, name: str, read: Callable[[str], tuple[str, str] | None]
) -> Mapping[str, Sequence[Parameter]] | None:
    """Return all parameters that a model, its loss and its optimizer may take, and more, by name.

    Args:
        module: dotted name of the model's file.
        name: of the model in it, a class, a function or a variable; empty: the only one there.
        read: gives the text of a module of the zoo by its dotted name, and the package that it is
            in, or is; None if the zoo has no such module.

    Returns:
        None if the source does not show them all: a ``**kwargs``, or a name that is computed.
    """
    found = _ModuleVisitor()
    waiting, seen = [module], {module}
    while waiting:
        text = read(waiting.pop())
        if text is None:
            continue
        try:
            tree = ast.parse(text[0])
        except (SyntaxError, ValueError, RecursionError):
            return None
        found.package = text[1].split(".")
        found.visit(tree)
        waiting += found.modules - seen
        seen |= found.modules
    taker = found.taker(name)
    if taker is None and (found.takes_any or name not in ("", *found.variables)):
        return None
    if found.hides or (taker is not None and taker.args.kwarg is not None):
        return None
    return found.known


@dataclass
class _ModuleVisitor(ast.NodeVisitor):
    """A visitor that collects what the modules of a zoo define.

    Attributes:
        known: parameters of functions by name; several functions may have one of a name.
        modules: that are imported, in the zoo or elsewhere.
        hides: something takes parameters, and the text does not show which.
        takes_any: a function has a ``**kwargs``, or a class takes what its base does.
        variables: that are objects of a class.
        package: parts of the name of what relative imports begin from.
    """

    known: dict[str, list[Parameter]] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    hides: bool = False
    takes_any: bool = False
    variables: set[str] = field(default_factory=set)
    package: list[str] = field(default_factory=list)
    _definitions: dict[str, ast.FunctionDef | ast.ClassDef] = field(default_factory=dict)

    def taker(self, name: str) -> ast.FunctionDef | None:
        """Return the function that takes the parameters of a model, or of a base class."""
        waiting, seen = [name], {name}
        while waiting:
            found = self._definitions.get(waiting.pop(0))
            if isinstance(found, ast.FunctionDef):
                return found
            for each in found.body if found is not None else ():
                if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    return each
            bases = [base.id for base in found.bases if isinstance(base, ast.Name)] if found else []
            waiting += [base for base in bases if base not in seen]
            seen.update(bases)
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._definitions.setdefault(node.name, node)
        for name, parameter in parameters_of(node):
            self.known.setdefault(name, []).append(parameter)
        self.takes_any |= node.args.kwarg is not None
        self.hides |= _is_role(node.name) and node.args.kwarg is not None

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._definitions.setdefault(node.name, node)
        names = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
        self.takes_any |= bool(node.bases) and "__init__" not in names
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        named = [each.id for each in node.targets if isinstance(each, ast.Name)]
        match node.value:
            case ast.Constant() | ast.List() | ast.Tuple() | ast.Dict():
                pass  # of values, which take no parameters
            case ast.Call(func=ast.Attribute(attr=name)) if name[:1].isupper():
                self.variables.update(named)  # an object, such as a model or a loss of Keras
            case ast.Call(func=ast.Name(id="staticmethod"), args=[ast.Attribute()]):
                pass  # of a class that is imported from the zoo, or defined here
            case ast.Name(id=name) if isinstance(self._definitions.get(name), ast.FunctionDef):
                pass  # another name of a function
            case _:
                self.hides |= any(map(_is_role, named))
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.modules |= {each.name for each in node.names}
        self.hides |= any(_is_role(each.asname or "") for each in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        parts = self.package[: len(self.package) + 1 - node.level] if node.level else []
        module = ".".join([*parts, *([node.module] if node.module else [])])
        self.modules.add(module)
        self.modules |= {f"{module}.{each.name}" for each in node.names}
        self.hides |= any(each.name == "*" for each in node.names)
        self.hides |= any(_is_role(each.asname or "") for each in node.names)


def _is_role(name: str) -> bool:
    """Return whether the part of a model file that has this name may take parameters."""
    return any(role in name for role in _ROLES)
