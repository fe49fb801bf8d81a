"""The interface that all forms of a model have in common."""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, Literal

from edl_worker.model_file import keras_2
from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import place_of, type_with_article
from edl_worker.model_file.framework_types import is_model_class
from edl_worker.model_file.zoo import compatibility

FormName = Literal["instance", "class", "function", "spec"]

# Role and names of a module's definitions, the preferred one first.
_MODULE_NAMES: tuple[tuple[Role, tuple[str, ...]], ...] = (
    ("input", ("dataset_fn", "feed")),
    ("input", ("input_fn",)),
    ("loss", ("loss",)),
    ("optimizer", ("optimizer",)),
    ("eval_metrics_fn", ("eval_metrics_fn", "metrics")),
    ("weighted_metrics", ("weighted_metrics",)),
    ("loss_weights", ("loss_weights",)),
    ("class_weight", ("class_weight",)),
    ("callbacks", ("callbacks",)),
    ("feature_columns", ("feature_columns",)),
    ("label_columns", ("label_columns",)),
    ("learning_rate_scheduler", ("learning_rate_scheduler",)),
    ("outputs_processor", ("PredictionOutputsProcessor",)),
    ("custom_data_reader", ("custom_data_reader",)),
)


OPTIONAL_ROLES: tuple[Role, ...] = (
    *("eval_metrics_fn", "weighted_metrics", "loss_weights", "class_weight", "callbacks"),
    "learning_rate_scheduler",
)
"""Roles that a model file may lack, so that a misspelled definition is easily overlooked."""

_OTHER_NAMES = {"criterion": "loss", "opt": "optimizer", "optim": "optimizer"}
_AFFIXES = re.compile(r"^(?:get|make|create|build|my|custom|own)_|_(?:fn|func|function|list)$")


def similar_name(role: Role, name: str) -> str | None:
    """Return the name of a definition of this role that another name was probably meant for."""
    if any(name in names for _, names in _MODULE_NAMES):
        return None  # it is a definition of another role
    known = {
        _AFFIXES.sub("", each): each
        for of, names in _MODULE_NAMES
        if of == role
        for each in reversed(names)
    }
    bare = _AFFIXES.sub("", name.lower())
    near = difflib.get_close_matches(_OTHER_NAMES.get(bare, bare), known, n=1, cutoff=0.8)
    return known[near[0]] if near else None


class ModelDefinition(ABC):
    """The object that ``--model-def`` names, in one of the forms.

    Attributes:
        form: name of the form.
        name: name of the object.
        value: the object.
        module: the module in which it was found.
    """

    form: ClassVar[FormName]

    def __init__(self, name: str, value: Any, module: ModuleType) -> None:
        self.name = name
        self.value = value
        self.module = module

    @staticmethod
    @abstractmethod
    def accepts(value: Any) -> bool:
        """Whether an object has this form."""

    def is_candidate(self) -> bool:
        """Whether this may be the model if ``--model-def`` names only the module."""
        return self._is_of_module()

    @property
    def place(self) -> str:
        """The file, line and name of the model."""
        return place_of(self.value, self.name)

    @property
    def code(self) -> Any:
        """The class or function whose code makes up the model."""
        return self.value

    def modules(self) -> list[ModuleType]:
        """Return the named module, then the zoo's module that defines the object."""
        defining = inspect.getmodule(self.code)
        modules = [self.module]
        if isinstance(getattr(defining, "__loader__", None), type(self.module.__loader__)):
            assert defining is not None
            modules.append(defining)
        return modules

    def definitions(self) -> dict[Role, Definition]:
        """Return the model file's own definitions by role: the model's before the module's."""
        definitions = self._own_definitions()
        for role, names in _MODULE_NAMES:
            for module, name in itertools.product(self.modules(), names):
                value = vars(module).get(name)
                # ``from keras import metrics`` defines nothing.
                if value is not None and not isinstance(value, ModuleType):
                    file = module.__file__ or ""
                    definitions.setdefault(role, Definition(role, name, value, file=file))
        return definitions

    @abstractmethod
    def constructors(self) -> list[Definition]:
        """Return the definitions that are called one after the other to create the model."""

    def create_model(self, caller: DefinitionCaller) -> Any:
        """Return the model, and set ``caller.owner`` to the object whose methods are definitions.

        Raises:
            EdlError, DefinitionRaised: the model cannot be created.
        """
        constructors = self.constructors()
        created: Any = None
        for constructor in constructors:
            created = _construct(constructor, caller)
            if caller.owner is None:
                caller.owner = created
        return keras_3_model(constructors[-1], created)

    def _own_definitions(self) -> dict[Role, Definition]:
        """Return the definitions that the model itself has."""
        return {}

    def _is_of_module(self) -> bool:
        """Whether the module defines the object, and does not only import it."""
        return getattr(self.value, "__module__", None) == self.module.__name__


def keras_3_model(definition: Definition, value: Any) -> Any:
    """Return the model of Keras 3 that a definition gives; a model of Keras 2 becomes one.

    Raises:
        EdlError: MODEL_CONTRACT, it is no model.
    """
    try:
        model = compatibility.to_keras_3(value)
    except ValueError as error:
        raise definition.error(f"cannot be used: {error}", keras_2.REMEDY) from error
    if not is_model_class(type(model)):
        raise definition.error(
            f"returned {type_with_article(value)}, not a Keras model",
            "End it with `return model`."
            if value is None
            else keras_2.REMEDY
            if keras_2.package_of(type(value))
            else "Return a keras.Model; Keras 3 comes with TensorFlow as tf.keras.",
        )
    if not hasattr(model, "compiled"):
        raise definition.error(
            "does not call super().__init__()", "Begin __init__ with super().__init__()."
        )
    return model


def _construct(constructor: Definition, caller: DefinitionCaller) -> Any:
    abstract = sorted(getattr(constructor.value, "__abstractmethods__", ()))
    if inspect.isclass(constructor.value) and abstract:
        names = ", ".join(abstract)
        raise constructor.error(f"does not define {names}", f"Add {names} to the class.")
    extra = caller.unclaimed_params() if constructor.has_var_keywords() else None
    return caller.call(constructor, extra)


def class_definitions(
    cls: type, names_of: Mapping[Role, tuple[str, ...]]
) -> dict[Role, Definition]:
    """Return the definitions that a class has, by role.

    Args:
        names_of: role to the names of members, the preferred one first.
    """
    definitions: dict[Role, Definition] = {}
    for role, names in names_of.items():
        for name in names:
            member = inspect.getattr_static(cls, name, None)
            if member is not None:
                definitions[role] = _member_definition(role, f"{cls.__name__}.{name}", member, cls)
                break
    return definitions


def _member_definition(role: Role, name: str, member: Any, cls: type) -> Definition:
    """Return a member of a class; a plain function without ``self`` counts as a static method."""
    if isinstance(member, staticmethod):
        return Definition(role, name, member.__func__)
    if isinstance(member, classmethod):
        return Definition(role, name, member.__get__(None, cls))
    if inspect.isfunction(member):
        first = next(iter(inspect.signature(member).parameters), "")
        return Definition(role, name, member, needs_self=first == "self")
    file = getattr(inspect.getmodule(cls), "__file__", None) or ""
    return Definition(role, name, member, file=file)
