"""Dataclasses whose methods are compiled on first use, which makes importing them cheap.

``dataclasses.dataclass`` compiles about five methods per class while a module is imported, and a
program calls few of them. Here a method is compiled when it is first looked up. It then replaces
its placeholder in the class, and is as fast as a written one. Frozen classes are made faster than
those of the standard library, because fields are set through their slots.

The classes behave like those of the standard library, whose ``fields``, ``asdict``, ``replace`` and
``dataclass`` accept them, also as bases. Type checkers see the functions of the standard library.
Only what this package uses is supported. Every class has slots, and no base is made by the standard
library. There is no ``ClassVar`` and no ``InitVar``.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_MISSING: Any = object()


class _LeftOut:
    """The default of a parameter whose value a factory makes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<factory>"


_LEFT_OUT: Any = _LeftOut()


class FieldOptions:
    """The default of a field, and the methods that it is part of."""

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "repr")

    def __init__(self, default: Any, default_factory: Any, *, init: bool, repr: bool, compare: bool) -> None:
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.kw_only = False


class CompiledMethod:
    """A method that is compiled when it is first looked up."""

    __slots__ = ("_compile", "_name", "_owner")

    def __init__(self, compile_for: Callable[[Any], Any]) -> None:
        self._compile = compile_for

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # Two threads may compile at the same time. The results are equal, and either may stay.
        method = self._compile(self._owner)
        setattr(self._owner, self._name, method)
        return method if instance is None else method.__get__(instance)


class StandardAttribute:
    """An attribute that the functions of ``dataclasses`` read, as an equal standard class has it."""

    __slots__ = ("_given", "_name", "_owner")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        found = getattr(_standard_class(self._owner, self._given), self._name)
        setattr(self._owner, self._name, found)
        return found


def _standard_class(cls: Any, given: Mapping[str, Any]) -> type:
    """Return a class of the standard library with the same fields, made with the given parameters."""
    # Imported here: it imports inspect, and few programs ask for the fields of a class.
    from dataclasses import field, make_dataclass

    fields = []
    for name, options in cls.__dataclass_options__.items():
        chosen = {key: getattr(options, key) for key in FieldOptions.__slots__}
        standard = field(**{key: value for key, value in chosen.items() if value is not _MISSING})
        fields.append((name, _annotation(cls, name), standard))
    return make_dataclass(cls.__name__, fields, **given)


def _annotation(cls: type, name: str) -> Any:
    return next(base.__annotations__[name] for base in cls.__mro__ if name in base.__annotations__)


def _field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
) -> Any:
    return FieldOptions(default, default_factory, init=init, repr=repr, compare=compare)


def _dataclass(*, slots: bool, frozen: bool = False, eq: bool = True, kw_only: bool = False) -> Callable[[Any], Any]:
    if not slots:
        raise TypeError("every class has slots: pass slots=True, or use the dataclass of the standard library")

    def decorate(cls: Any) -> Any:
        # Slots cannot be added to a class, so it is made again, as the standard library does.
        body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        inherited = _inherited_options(cls)
        own = {name: _options(name, body.pop(name, _MISSING), kw_only) for name in cls.__annotations__}
        options = inherited | own
        names = [name for name, option in options.items() if option.init and not option.kw_only]
        body |= {"__qualname__": cls.__qualname__, "__dataclass_options__": options}
        body |= {"__slots__": tuple(name for name in own if name not in inherited)}
        methods = _METHODS | {"__match_args__": tuple(names), "__init__": CompiledMethod(_compile_init)}
        if eq:
            methods["__eq__"] = CompiledMethod(_compile_eq)
            if body.get("__hash__") is None:
                body["__hash__"] = CompiledMethod(_compile_hash) if frozen else None
        if frozen:
            methods |= _FROZEN_METHODS
        given = {"slots": True, "frozen": frozen, "eq": eq, "kw_only": kw_only}
        methods |= {name: StandardAttribute(given) for name in ("__dataclass_fields__", "__dataclass_params__")}
        # What the class itself defines is kept.
        return type(cls)(cls.__name__, cls.__bases__, methods | body)

    return decorate


def _inherited_options(cls: type) -> dict[str, FieldOptions]:
    found: dict[str, FieldOptions] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= getattr(base, "__dataclass_options__", {})
    return found


def _options(name: str, default: Any, kw_only: bool) -> FieldOptions:
    options = default if isinstance(default, FieldOptions) else _field(default=default)
    if options.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default for field {name}: use default_factory")
    options.kw_only = kw_only
    return options


def _compile_init(cls: Any) -> Any:
    """Return ``__init__``. Its parameters have the order of the fields, those by keyword last."""
    options: Mapping[str, FieldOptions] = cls.__dataclass_options__
    given = {name: option for name, option in options.items() if option.init}
    by_position = [_parameter(name, option) for name, option in given.items() if not option.kw_only]
    by_keyword = [_parameter(name, option) for name, option in given.items() if option.kw_only]
    parameters = ["self", *by_position, *(["*", *by_keyword] if by_keyword else [])]
    assignment = "_set_{0}(self, {1})" if _is_frozen(cls) else "self.{0} = {1}"
    values = {name: _value(name, option) for name, option in options.items()}
    lines = [assignment.format(name, value) for name, value in values.items() if value]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    known = {"_left_out": _LEFT_OUT}
    known |= {f"_set_{name}": getattr(cls, name).__set__ for name in options}
    known |= {f"_default_{name}": option.default for name, option in options.items()}
    known |= {f"_make_{name}": option.default_factory for name, option in options.items()}
    method = _compiled(cls, "__init__", parameters, lines or ["pass"], known)
    method.__annotations__ = {name: _annotation(cls, name) for name in given} | {"return": None}
    return method


def _parameter(name: str, option: FieldOptions) -> str:
    if option.default_factory is not _MISSING:
        return f"{name}=_left_out"
    return name if option.default is _MISSING else f"{name}=_default_{name}"


def _value(name: str, option: FieldOptions) -> str:
    """Return what ``__init__`` assigns to a field; empty if the class assigns it in ``__post_init__``."""
    made = f"_make_{name}()"
    if option.default_factory is not _MISSING:
        return f"{made} if {name} is _left_out else {name}" if option.init else made
    if option.init:
        return name
    return "" if option.default is _MISSING else f"_default_{name}"


def _compile_eq(cls: Any) -> Any:
    mine, other = (_fields_of(cls, instance) for instance in ("self", "other"))
    lines = ["if other.__class__ is self.__class__:", f"    return {mine} == {other}", "return NotImplemented"]
    return _compiled(cls, "__eq__", ["self", "other"], lines, {})


def _compile_hash(cls: Any) -> Any:
    return _compiled(cls, "__hash__", ["self"], [f"return _hash({_fields_of(cls, 'self')})"], {"_hash": hash})


def _fields_of(cls: Any, instance: str) -> str:
    compared = [f"{instance}.{name}," for name, option in cls.__dataclass_options__.items() if option.compare]
    return f"({' '.join(compared)})"


def _compiled(cls: Any, name: str, parameters: list[str], lines: list[str], known: Mapping[str, Any]) -> Any:
    """Compile a method that knows some names beside those of its module."""
    body = "\n  ".join(lines)
    text = f"def compiled({', '.join(known)}):\n def {name}({', '.join(parameters)}):\n  {body}\n return {name}"
    made: dict[str, Any] = {}
    # A program may have removed the module before the first use of the class.
    module = sys.modules.get(cls.__module__)
    exec(text, {"__name__": cls.__module__} if module is None else vars(module), made)
    method = made["compiled"](**known)
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _is_frozen(cls: Any) -> bool:
    return cls.__setattr__ is _refuse_assignment


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    _refuse_change(self, name, "assign to")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    _refuse_change(self, name, "delete")
    object.__delattr__(self, name)


def _refuse_change(changed: Any, name: str, what: str) -> None:
    """Raise, unless an ordinary subclass changes an attribute that it has added."""
    if "__dataclass_options__" in vars(type(changed)) or name in changed.__dataclass_options__:
        # Imported here, like all of the standard library's dataclasses.
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {what} field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, name) for name in _field_names(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for name, value in zip(_field_names(self), state, strict=True):
        object.__setattr__(self, name, value)


def _field_names(value: Any) -> Iterable[str]:
    """Return the names of all fields, also of those that a subclass of the standard library adds."""
    options: Mapping[str, FieldOptions] = value.__dataclass_options__
    if "__dataclass_options__" in vars(type(value)):
        return options
    return [one.name for one in _fields(value)]


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name, option in self.__dataclass_options__.items() if option.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _replace(value: Any, /, **changes: Any) -> Any:
    if "__dataclass_options__" not in vars(type(value)):
        # A subclass of the standard library may have more fields.
        from dataclasses import replace

        return replace(value, **changes)
    for name, option in value.__dataclass_options__.items():
        if option.init and name not in changes:
            changes[name] = getattr(value, name)
    return type(value)(**changes)


def _fields(value: Any) -> Any:
    # Imported here, like all of the standard library's dataclasses.
    from dataclasses import fields

    return fields(value)


def _asdict(value: Any) -> dict[str, Any]:
    # Imported here, like all of the standard library's dataclasses.
    from dataclasses import asdict

    return asdict(value)


_METHODS: dict[str, Any] = {"__repr__": _repr, "__replace__": _replace}
_FROZEN_METHODS: dict[str, Any] = {
    "__setattr__": _refuse_assignment,
    "__delattr__": _refuse_deletion,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}

if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import replace as replace
else:
    asdict, dataclass, field, fields, replace = _asdict, _dataclass, _field, _fields, _replace
