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
) -> tuple[str, dict[str, Any]]:
    """Class name and configuration of a serialized Keras object.

    Raises:
        OptimizerUnsupported: it is malformed, or a class that is not Keras's own: a subclass may
            have a known name and another rule.
    """
    name, config = serialized.get("class_name"), serialized.get("config")
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise OptimizerUnsupported(option, f"{dict(serialized)!r}", remedy)
    origin = serialized.get("module") or module
    if serialized.get("registered_name") or origin != module:
        where = serialized.get("registered_name") or f"{origin}.{name}"
        raise OptimizerUnsupported(option, f"{where}, a class of your own,", remedy)
    return name, dict(config)


def read_fields(owner: str, kind: type[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The values that ``config`` gives for a dataclass's fields.

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
