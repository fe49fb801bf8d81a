"""Reading what ``keras.optimizers.serialize`` writes, without Keras: nothing is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any


class OptimizerUnsupported(ValueError):
    """The master cannot do what an optimizer's configuration asks for.

    Attributes:
        option: the option, schedule or class that is not supported.
        remedy: what to use instead.
    """

    def __init__(self, option: str, value: str, remedy: str) -> None:
        super().__init__(f"optimizer: {option} = {value} is not supported: {remedy}")
        self.option = option
        self.remedy = remedy


def unwrap(
    serialized: Mapping[str, Any], option: str, module: str, remedy: str
) -> tuple[str, dict[str, Any], bool]:
    """Return class name and configuration of a serialized object, and whether it is Keras's own.

    A subclass of a user may have the name of one of Keras and do something else.

    Raises:
        OptimizerUnsupported: it is malformed.
    """
    name, config = serialized.get("class_name"), serialized.get("config")
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise OptimizerUnsupported(option, f"{dict(serialized)!r}", remedy)
    origin = serialized.get("module") or module
    is_keras = origin == module and not serialized.get("registered_name")
    return name, dict(config), is_keras


def foreign_class(serialized: Mapping[str, Any], option: str, remedy: str) -> OptimizerUnsupported:
    """Return the refusal of a class that is not Keras's own."""
    name = f"{serialized.get('module')}.{serialized['class_name']}"
    where = serialized.get("registered_name") or name
    return OptimizerUnsupported(option, f"{where}, a class of your own,", remedy)


def read_fields(owner: str, kind: type[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that ``config`` gives for a dataclass's fields.

    ``name`` is for people and carries no meaning. An unknown option that is off (None or False)
    asks for nothing.

    Raises:
        OptimizerUnsupported: an option is unknown, or one without a default is missing.
    """
    known = {f.name: f for f in fields(kind)}
    for option, value in config.items():
        if option not in known and option != "name" and value is not None and value is not False:
            raise OptimizerUnsupported(
                f"{owner}.{option}", f"{value!r}", f"leave it out; {owner} takes {', '.join(known)}"
            )
    for field in known.values():
        if field.name not in config and field.default is MISSING:
            raise OptimizerUnsupported(f"{owner}.{field.name}", "nothing", "give it a value")
    return {name: config[name] for name in known if name in config}
