"""Finds the files that a module reads or imports when it is imported, as far as its text shows.

This finds constant paths, and paths that are made of constants. Nothing of the module is run.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

_Values: TypeAlias = Mapping[str, str]
"""The texts and paths that names stand for."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_READER = re.compile(
    r"open|(read|load|scan)(_\w+)?|loadtxt|genfromtxt|fromfile|imread|GFile|File|safe_open"
    r"|\w*(Dataset|Lookup|TextVectorization|FileInitializer)|make_csv_dataset"
)
"""The last names of functions and classes of Python, Keras and others that read files."""

_WRITING = re.compile(r"[rbtU]*[wax][bt+]*|r[bt]*\+[bt]*")


def reads_at_import(source: str, file: str, entry: str = "") -> list[tuple[int, str]]:
    """Return the lines that read a file, and its path as the text has it, perhaps relative.

    Imports count, too, from folders that the module adds to ``sys.path``: with each path that the
    code may have there.

    Args:
        source: the text of the module.
        file: path of the module.
        entry: a function or class of the module that is called after the import.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    module = _Module(ast.parse(source, file), file)
    return list(dict.fromkeys((*module.run(), *module.call(entry, {}))))


class _Module:
    def __init__(self, tree: ast.Module, file: str) -> None:
        self._body = tree.body
        self._globals = {"__file__": file}
        self._functions = {each.name: each for each in tree.body if isinstance(each, _Function)}
        self._classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
        self._folders: list[str] = []
        self._called: set[tuple[str, frozenset[tuple[str, str]]]] = set()

    def run(self) -> Iterator[tuple[int, str]]:
        """Yield what is read at the import."""
        yield from self._visit_all(self._body, self._globals)

    def call(self, name: str, arguments: Mapping[str, str]) -> Iterator[tuple[int, str]]:
        """Yield what a function of the module reads, or a class when an object of it is made."""
        key = (name, frozenset(arguments.items()))
        if key in self._called:  # which ends a recursion, too
            return
        self._called.add(key)
        function = self._functions.get(name) or _find_initializer(self._classes.get(name))
        if function is not None:
            yield from self._visit_all(function.body, {**self._globals, **arguments})

    def _visit_all(
        self, nodes: Iterable[ast.AST], values: dict[str, str]
    ) -> Iterator[tuple[int, str]]:
        for node in nodes:
            yield from self._visit(node, values)

    def _visit(self, node: ast.AST, values: dict[str, str]) -> Iterator[tuple[int, str]]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return  # only a call runs it
            case ast.If(test=ast.Compare(left=ast.Name("__name__")), orelse=orelse):
                yield from self._visit_all(orelse, values)
                return
            case ast.ClassDef(body=body):
                yield from self._visit_all(body, dict(values))
                return
        yield from self._visit_all(ast.iter_child_nodes(node), values)
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                _bind(values, name, value)
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                _bind(values, name, value)
            case ast.Call(func=ast.Attribute(ast.Attribute(ast.Name("sys"), "path"))):
                texts = [_evaluate(each, values) for each in node.args]
                self._folders += [text for text in texts if text]
            case ast.Call():
                yield from self._visit_call(node, values)
            case ast.Import(names):
                yield from self._visit_import(node.lineno, [each.name for each in names])
            case ast.ImportFrom(module=str(module), level=0):
                yield from self._visit_import(node.lineno, [module])

    def _visit_import(self, line: int, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        for folder in self._folders:
            for name in names:
                path = os.path.join(folder, *name.split("."))
                yield from ((line, path + end) for end in (".py", "/__init__.py"))

    def _visit_call(self, call: ast.Call, values: _Values) -> Iterator[tuple[int, str]]:
        match call.func:
            case ast.Name(name) if name in self._functions or name in self._classes:
                function = self._functions.get(name)
                function = function or _find_initializer(self._classes[name])
                yield from self.call(name, _find_arguments(call, function, values))
                return
            case ast.Name(name):
                given = []
            case ast.Attribute(value, name):
                given = [value]
            case _:
                return
        if not _READER.fullmatch(name):
            return
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            # A list that a layer gets is one of words.
            if isinstance(argument, ast.List) and name.endswith("Dataset"):
                given += argument.elts
            else:
                given.append(argument)
        texts = [text for each in given if (text := _evaluate(each, values))]
        if not any(map(_WRITING.fullmatch, texts)):
            yield from ((call.lineno, text) for text in texts if not text.endswith(".py"))


def _find_initializer(owner: ast.ClassDef | None) -> _Function | None:
    for each in owner.body if owner is not None else ():
        if isinstance(each, _Function) and each.name == "__init__":
            return each
    return None


def _find_arguments(call: ast.Call, function: _Function | None, values: _Values) -> dict[str, str]:
    """Return the parameters of a function whose values a call shows, or their defaults."""
    if function is None:
        return {}
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] == ["self"]:
        names.pop(0)
    defaults = function.args.defaults
    nodes = dict(zip(names[len(names) - len(defaults) :], defaults, strict=False))
    nodes |= dict(zip(names, call.args, strict=False))
    nodes |= {each.arg: each.value for each in call.keywords if each.arg is not None}
    return {name: text for name, node in nodes.items() if (text := _evaluate(node, values))}


def _bind(values: dict[str, str], name: str, value: ast.expr) -> None:
    text = _evaluate(value, values)
    values.pop(name, None)
    if text is not None:
        values[name] = text


def _evaluate(node: ast.expr, values: _Values) -> str | None:
    """Return the text or the path that an expression stands for; None if its text does not show."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.Name(name):
            return values.get(name)
        case ast.JoinedStr(parts):
            return _join("", parts, values)
        case ast.FormattedValue(value, -1, None):
            return _evaluate(value, values)
        case ast.BinOp(left, ast.Add(), right):
            return _join("", (left, right), values)
        case ast.BinOp(left, ast.Div(), right):
            return _join("/", (left, right), values)
        case ast.Attribute(path, "parent"):
            return _dirname(_evaluate(path, values))
        case ast.Subscript(ast.Attribute(path, "parents"), ast.Constant(int(index))):
            return _dirname(_evaluate(path, values), index + 1)
        case ast.Call():
            return _evaluate_call(node, values)
    return None


def _evaluate_call(call: ast.Call, values: _Values) -> str | None:
    match call:
        case ast.Call(func=ast.Attribute(ast.Name("Path") | ast.Attribute(attr="Path"), "home")):
            return os.path.expanduser("~")
        case ast.Call(
            func=ast.Name("Path" | "PurePath")
            | ast.Attribute(_, "Path" | "PurePath")
            | ast.Attribute(ast.Attribute(ast.Name("os"), "path"), "join"),
            args=parts,
        ) if parts:
            return _join("/", parts, values)
        case ast.Call(func=ast.Attribute(ast.Attribute(ast.Name("os"), "path"), name), args=[path]):
            return _change(name, _evaluate(path, values))
        case ast.Call(func=ast.Name("str") | ast.Attribute(_, "fspath"), args=[path]):
            return _evaluate(path, values)
        case ast.Call(func=ast.Attribute(path, "with_name"), args=[name]):
            folder, last = _dirname(_evaluate(path, values)), _evaluate(name, values)
            return None if folder is None or last is None else os.path.join(folder, last)
        case ast.Call(func=ast.Attribute(path, "joinpath"), args=parts):
            return _join("/", (path, *parts), values)
        case ast.Call(func=ast.Attribute(path, name), args=[]):
            return _change(name, _evaluate(path, values))
    return None


def _change(function: str, path: str | None) -> str | None:
    """Return what a function of ``os.path``, or a method of ``Path``, makes of a path."""
    if path is None:
        return None
    match function:
        case "dirname":
            return _dirname(path)
        case "expanduser":
            return os.path.expanduser(path)
        case "abspath" | "realpath" | "normpath" | "resolve" | "absolute":
            return os.path.abspath(path)
    return None


def _join(between: str, parts: Sequence[ast.expr], values: _Values) -> str | None:
    texts = [text for part in parts if (text := _evaluate(part, values)) is not None]
    if len(texts) < len(parts):
        return None
    return os.path.join(*texts) if between else "".join(texts)


def _dirname(path: str | None, times: int = 1) -> str | None:
    if path is not None:
        for _ in range(min(times, path.count("/") + 1)):
            path = os.path.dirname(path)
    return path
