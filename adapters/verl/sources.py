"""Looks definitions up in the source of a package, without importing it.

Importing verl's trainers takes seconds, resolves the hardware platform, and fails where verl is broken. The source
tells names and parameters just as well. What is imported or inherited is followed within the known packages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Source of one or several top-level packages.

    Args:
        folders: Package name to its folder.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._parsed: dict[str, ast.Module | None] = {}

    def knows(self, package: str) -> bool:
        """True if the top-level package is there."""
        return package in self._folders

    def find(self, module: str, name: str) -> ast.AST | None:
        """The definition of a function, class, method or attribute.

        Args:
            module: Dotted module name.
            name: `function`, `Class` or `Class.member`. An attribute that a method sets on `self` is a member.
        """
        top, _, member = name.partition(".")
        found = self._top(module, top)
        if found is None or not member:
            return found and found[1]
        return self._member(*found, member, seen=set())

    def has_text(self, module: str, text: str) -> bool:
        """True if the module contains the string constant."""
        tree = self._parse(module)
        return tree is not None and any(
            isinstance(node, ast.Constant) and node.value == text for node in ast.walk(tree)
        )

    def _top(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """The module that really defines a top-level name, and the definition."""
        tree = self._parse(module)
        for node in _statements(tree.body if tree else ()):
            if isinstance(node, ast.ClassDef | _Function) and node.name == name:
                return module, node
            if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
                return module, node
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return module, node
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self._top(self._absolute(node, module), alias.name)
        return None

    def _member(self, module: str, cls: ast.AST, name: str, seen: set[ast.AST]) -> ast.AST | None:
        if not isinstance(cls, ast.ClassDef) or cls in seen:
            return None
        seen.add(cls)
        for node in ast.walk(cls):
            if isinstance(node, _Function) and node.name == name and node in cls.body:
                return node
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return node
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and node.attr == name
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                return node
        for base in cls.bases:
            found = self._top(module, base.id) if isinstance(base, ast.Name) else None
            member = found and self._member(*found, name, seen)
            if member:
                return member
        return None

    def _parse(self, module: str) -> ast.Module | None:
        if module not in self._parsed:
            package, *rest = module.split(".")
            stem = self._folders[package].joinpath(*rest) if package in self._folders else None
            files = [] if stem is None else [stem / "__init__.py", stem.with_suffix(".py")]
            file = next((file for file in files if file.is_file()), None)
            try:
                self._parsed[module] = None if file is None else ast.parse(file.read_bytes())
            except SyntaxError:
                self._parsed[module] = None  # whoever imports it is told
        return self._parsed[module]

    def _absolute(self, node: ast.ImportFrom, module: str) -> str:
        if not node.level:
            return node.module or ""
        folder = self._folders[module.split(".")[0]].joinpath(*module.split(".")[1:])
        parts = module.split(".") if folder.is_dir() else module.split(".")[:-1]
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, *filter(None, [node.module])])


def parameters(function: ast.AST) -> list[str] | None:
    """Parameters of a function as `name`, `name=`, `*name` or `**name`, `self` left out; None for anything else."""
    if not isinstance(function, _Function):
        return None
    spec = function.args
    plain = [*spec.posonlyargs, *spec.args]
    first_default = len(plain) - len(spec.defaults)
    names = [arg.arg + "=" * (at >= first_default) for at, arg in enumerate(plain)]
    names += [f"*{spec.vararg.arg}"] if spec.vararg else []
    names += [
        arg.arg + "=" * (default is not None) for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    ]
    names += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those inside `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _statements([*node.body, *(item for handler in node.handlers for item in handler.body)])
