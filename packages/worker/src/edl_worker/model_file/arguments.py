"""Arguments bound by name: what a function of a model file wants to be given.

``loss(labels, predictions)`` and ``loss(output, labels)`` are the same contract to us, and so
are ``dataset_fn(dataset, mode)`` and ``input_fn(records)``; the parameters' names tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.errors import place_of

# What we can give, and the names under which model files ask for it.
ROLES: dict[str, frozenset[str]] = {
    "labels": frozenset(
        ("labels", "label", "y_true", "targets", "target", "true_labels", "y", "truth")
    ),
    "outputs": frozenset(
        ("outputs", "output", "predictions", "prediction", "preds", "pred", "y_pred", "logits")
    ),
    "dataset": frozenset(("dataset", "ds")),
    "records": frozenset(("records", "rows", "examples", "record_list")),
    "mode": frozenset(("mode",)),
    "metadata": frozenset(("metadata", "_metadata", "_")),
    "context": frozenset(("context",)),
}

# What is given to a part without being asked by --params.
_GIVEN: dict[str, tuple[str, ...]] = {
    "input": ("dataset", "records", "mode", "metadata"),
    "loss": ("labels", "outputs"),
    "eval_metrics_fn": ("labels", "outputs", "mode"),
    "metric": ("labels", "outputs"),
    "model": ("context",),
    "spec": ("context",),
}


@dataclass(frozen=True, slots=True)
class Definition:
    """One part of the contract as it was found.

    Attributes:
        role: ``input``, ``loss``, ``optimizer``, ...; what it serves as.
        name: what a person calls it: ``loss`` or ``DNN.default_loss``.
        value: a function, a class, or the thing itself.
        drops_self: ``value`` is a plain method whose first parameter is the model.
    """

    role: str
    name: str
    value: Any
    drops_self: bool = False

    @property
    def where(self) -> str:
        return place_of(self.value, self.name.rpartition(".")[2])

    @property
    def signature(self) -> str:
        names = [str(p).partition(":")[0].partition("=")[0] for p in self.parameters().values()]
        return f"{self.name}({', '.join(names)})"

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Parameters that somebody has to fill; empty for what has no readable signature."""
        if not callable(self.value):
            return {}
        try:
            found = dict(inspect.signature(self.value).parameters)
        except (TypeError, ValueError):
            return {}
        if self.drops_self:
            found.pop(next(iter(found)))
        return found

    def takes(self) -> list[str]:
        """Names that ``--params`` may give."""
        given = {name for role in _GIVEN.get(self.role, ()) for name in ROLES[role]}
        return [
            name
            for name, parameter in self.parameters().items()
            if name not in given
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]

    def takes_any(self) -> bool:
        return any(p.kind is p.VAR_KEYWORD for p in self.parameters().values())

    def required(self) -> list[str]:
        return [
            name
            for name, parameter in self.parameters().items()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A function of the model file, ready to be called with what it asks for."""

    part: Definition
    function: Callable[..., Any]
    roles: Mapping[str, str]  # parameter name -> role
    constants: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **given: Any) -> Any:
        """Calls it with ``given`` by role; roles that it does not ask for are left out."""
        arguments = {name: given[role] for name, role in self.roles.items() if role in given}
        return self.function(**arguments, **self.constants)


def bind(
    part: Definition,
    function: Callable[..., Any],
    *,
    needs: tuple[str, ...],
    offers: tuple[str, ...] = (),
    params: Mapping[str, Any],
    by_position: bool = False,
) -> BoundFunction:
    """Matches a function's parameters with roles and ``--params``.

    Args:
        function: ``part.value``, or what it is on an instance.
        needs: roles that the function must take.
        offers: further roles that it may take.
        by_position: parameters whose names say nothing get the roles in order; else only a
            single one left is matched with a single role left.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    roles: dict[str, str] = {}
    constants: dict[str, Any] = {}
    unknown: list[str] = []
    required = part.required()
    parameters = part.parameters()
    takable = part.takes()
    positional_only = [
        name for name, value in parameters.items() if value.kind is value.POSITIONAL_ONLY
    ]
    if positional_only:
        raise _cannot_bind(part, needs, f"{', '.join(positional_only)} cannot be given by name")
    for name in parameters:
        role = next((r for r in (*needs, *offers) if name in ROLES[r]), None)
        if role is not None:
            roles[name] = role
        elif name in takable and name in params:
            constants[name] = params[name]
        elif name in required:
            unknown.append(name)
    missing = [role for role in needs if role not in roles.values()]
    if by_position:
        open_roles = [role for role in (*needs, *offers) if role not in roles.values()]
        for name, role in zip(list(unknown), open_roles, strict=False):
            roles[name] = role
            unknown.remove(name)
        missing = [role for role in missing if role not in roles.values()]
    elif len(missing) == 1 and len(unknown) == 1:
        roles[unknown.pop()] = missing.pop()
    if missing:
        names = [_SHOWN.get(role, role) for role in missing]
        raise _cannot_bind(part, needs, f"it takes no {' and no '.join(names)}")
    if unknown:
        raise _cannot_bind(part, needs, f"nothing is known to give for {', '.join(unknown)}")
    return BoundFunction(part, function, roles, constants)


_SHOWN = {"outputs": "predictions"}


def _cannot_bind(part: Definition, needs: tuple[str, ...], why: str) -> EdlError:
    names = ", ".join(_SHOWN.get(role, role) for role in needs)
    return EdlError(
        error_pb2.MODEL_CONTRACT,
        f"{part.signature} cannot be called: {why}",
        where=part.where,
        remedy=f"Write it as {part.name.rpartition('.')[2]}({names}); arguments are given by "
        "name, and any other parameter needs a default or a value in --params.",
    )
