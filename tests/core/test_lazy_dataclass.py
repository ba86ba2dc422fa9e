"""Dataclasses with deferred methods behave like those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
import pydoc
import sys
import threading
import typing
import weakref
from types import ModuleType
from typing import Any, Generic, TypeVar

import pytest

from zae_limiter.core import lazy_dataclass

T = TypeVar("T")


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    """Frozen, with defaults."""

    x: int
    y: int = 2
    tags: list[str] = lazy_dataclass.field(default_factory=list)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Space(Point):
    """Inherits fields and replaces a default."""

    y: int = 20
    z: int = 3


@lazy_dataclass.dataclass(slots=True)
class Pair(Generic[T]):
    """Not frozen, generic, with fields that the class sets."""

    left: T
    right: T
    total: Any = lazy_dataclass.field(init=False, repr=False, compare=False)
    seen: list[T] = lazy_dataclass.field(init=False, default_factory=list)
    kind: str = lazy_dataclass.field(init=False, default="pair")

    def __post_init__(self) -> None:
        self.total = [self.left, self.right]


@lazy_dataclass.dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Only keyword parameters."""

    first: str
    second: str = "b"


@lazy_dataclass.dataclass(slots=True, eq=False)
class Identity:
    """Compared by identity."""

    x: int


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Written:
    """Keeps the methods that it defines."""

    x: int

    def __repr__(self) -> str:
        return "written"

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return False


@lazy_dataclass.dataclass(slots=True)
class Empty:
    """No fields."""


class PlainSpace(Space):
    """An ordinary subclass."""


@dataclasses.dataclass(frozen=True)
class StandardSpace(Space):
    """A subclass that the standard library makes, as a user's may be."""

    label: str = "a"


def new_class() -> Any:
    """Return a class of which no method was used."""

    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class New:
        """A new class."""

        x: int
        tags: list[str] = lazy_dataclass.field(default_factory=list)

    return New


def standard(cls: Any) -> Any:
    """Return the class that the standard library makes of the same body."""
    options = {"frozen": cls is not Pair and cls is not Identity and cls is not Empty}
    fields = [(field.name, field.type, _standard_field(field)) for field in dataclasses.fields(cls)]
    post_init = {"__post_init__": cls.__post_init__} if cls is Pair else {}
    made = dataclasses.make_dataclass(
        cls.__name__, fields, namespace=post_init, slots=True, kw_only=cls is Named, eq=cls is not Identity, **options
    )
    made.__qualname__ = cls.__qualname__
    return made


def _standard_field(field: Any) -> Any:
    copied = ("default", "default_factory", "init", "repr", "compare")
    return dataclasses.field(**{name: getattr(field, name) for name in copied})


EXAMPLES = [
    (Point, (1,), {}),
    (Point, (1, 5), {"tags": ["a"]}),
    (Space, (1,), {"z": 9}),
    (Pair, ("a", "b"), {}),
    (Named, (), {"first": "a"}),
    (Empty, (), {}),
]
CLASSES = [Point, Space, Pair, Named, Identity, Empty]


class TestLikeTheStandardLibrary:
    @pytest.mark.parametrize(("cls", "positional", "named"), EXAMPLES)
    def test_repr_is_that_of_a_standard_dataclass(self, cls, positional, named):
        """Fields are shown in their order, unless they have repr=False."""
        assert repr(standard(cls)(*positional, **named)) == repr(cls(*positional, **named))

    @pytest.mark.parametrize(("cls", "positional", "named"), EXAMPLES)
    def test_asdict_is_that_of_a_standard_dataclass(self, cls, positional, named):
        """The functions of the standard library accept the classes."""
        expected = dataclasses.asdict(standard(cls)(*positional, **named))

        assert expected == dataclasses.asdict(cls(*positional, **named))
        assert expected == lazy_dataclass.asdict(cls(*positional, **named))

    @pytest.mark.parametrize("cls", CLASSES)
    def test_signature_and_match_args_are_those_of_a_standard_dataclass(self, cls):
        """Parameters have the names, defaults and annotations of the fields."""
        wanted, found = inspect.signature(standard(cls)), inspect.signature(cls)

        assert [(one.name, one.kind, one.annotation) for one in wanted.parameters.values()] == [
            (one.name, one.kind, one.annotation) for one in found.parameters.values()
        ]
        assert standard(cls).__match_args__ == cls.__match_args__

    @pytest.mark.parametrize("cls", CLASSES)
    def test_hashability_is_that_of_a_standard_dataclass(self, cls):
        """Frozen classes are hashed by value, others that compare by value cannot be hashed."""
        assert (standard(cls).__hash__ is None) == (cls.__hash__ is None)

    @pytest.mark.parametrize("cls", CLASSES)
    def test_fields_and_parameters_are_those_of_a_standard_dataclass(self, cls):
        """A class of the standard library can inherit, because it finds whether its base is frozen."""
        wanted, found = standard(cls).__dataclass_params__, cls.__dataclass_params__
        assert repr(wanted) == repr(found)
        assert [field.name for field in dataclasses.fields(standard(cls))] == [
            field.name for field in lazy_dataclass.fields(cls)
        ]


class TestInit:
    def test_missing_argument_raises_type_error_with_the_name_of_the_class(self):
        """It fails like a written constructor."""
        with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
            Point()

    def test_every_instance_has_its_own_value_from_a_factory(self):
        """A factory is called once per instance."""
        assert Point(1).tags is not Point(1).tags

    def test_method_is_compiled_once(self):
        """The compiled method replaces its placeholder."""
        Point(1)

        assert inspect.isfunction(vars(Point)["__init__"])
        assert Point.__init__ is Point.__init__

    def test_mutable_default_raises(self):
        """All instances would share it."""
        with pytest.raises(ValueError, match="mutable default for field names"):

            @lazy_dataclass.dataclass(slots=True)
            class Shared:
                names: list[str] = []  # noqa: RUF012 - it is what the test is about

    def test_class_without_slots_raises(self):
        """They are not supported."""
        with pytest.raises(TypeError, match="slots=True"):
            lazy_dataclass.dataclass(frozen=True, slots=False)


class TestEquality:
    def test_equal_fields_are_equal_and_have_one_hash(self):
        """Comparison is by value."""
        assert Named(first="a") == Named(first="a", second="b")
        assert hash(Named(first="a")) == hash(Named(first="a", second="b"))

    def test_fields_that_are_not_compared_are_ignored(self):
        """A field with compare=False may differ."""
        one, other = Pair(1, 2), Pair(1, 2)
        other.total = None

        assert one == other

    @pytest.mark.parametrize("other", [Point(2), Space(1, 2), 1])
    def test_other_values_and_classes_differ(self, other):
        """A subclass with the same values is not equal."""
        assert Point(1) != other

    def test_without_eq_only_the_same_instance_is_equal(self):
        """Such instances can be hashed."""
        one = Identity(1)

        assert one == one
        assert one != Identity(1)
        assert {one} == {one}

    def test_methods_that_a_class_defines_are_kept(self):
        """Nothing is overwritten."""
        assert ("written", 7, False) == (repr(Written(1)), hash(Written(1)), Written(1) == Written(1))


class TestFrozen:
    def test_assignment_and_deletion_raise(self):
        """They raise the error of the standard library."""
        point = Point(1)

        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            point.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del point.x
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'other'"):
            point.other = 2

    def test_ordinary_subclass_may_change_only_what_it_adds(self):
        """The inherited fields stay frozen."""
        plain = PlainSpace(1)
        plain.added = 5
        assert 5 == plain.added
        del plain.added

        with pytest.raises(dataclasses.FrozenInstanceError):
            plain.z = 5
        with pytest.raises(dataclasses.FrozenInstanceError):
            del plain.z

    @pytest.mark.parametrize("value", [Point(1, 2, ["a"]), Space(1), Pair(1, 2), Named(first="a")])
    def test_copies_are_equal(self, value):
        """Values can be pickled and copied."""
        copies = [pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)]

        assert [value] * 3 == copies

    def test_instance_has_slots_and_no_dictionary(self):
        """A subclass adds only its own slots."""
        assert (("x", "y", "tags"), ("z",)) == (Point.__slots__, Space.__slots__)
        assert not hasattr(Space(1), "__dict__")


class TestReplace:
    @pytest.mark.parametrize("replace", [lazy_dataclass.replace, dataclasses.replace])
    def test_replace_returns_a_copy_with_the_changes(self, replace):
        """Fields that __init__ does not take are made again."""
        assert Point(1, 5) == replace(Point(1), y=5)
        assert [1, 5] == replace(Pair(1, 2), right=5).total

    def test_repr_of_an_instance_inside_itself_ends(self):
        """It is shown as three dots."""
        pair = Pair[Any](1, 2)
        pair.left = pair

        assert "Pair(left=..., right=2, seen=[], kind='pair')" == repr(pair)


class TestSubclassOfTheStandardLibrary:
    """Users may add fields with the decorator of the standard library."""

    def test_constructor_and_fields_include_those_of_the_base(self):
        """Inherited fields come first."""
        made = StandardSpace(1, label="b")

        assert "StandardSpace(x=1, y=20, tags=[], z=3, label='b')" == repr(made)
        assert ["x", "y", "tags", "z", "label"] == [field.name for field in dataclasses.fields(made)]
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.label = "c"

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
    def test_copies_keep_added_fields(self, copied):
        """The state of an instance has the fields of the subclass."""
        value = StandardSpace(1, label="b")

        assert value == copied(value)

    @pytest.mark.parametrize("replace", [lazy_dataclass.replace, dataclasses.replace])
    def test_replace_keeps_added_fields(self, replace):
        """Fields that are not changed are taken over."""
        assert StandardSpace(5, label="b") == replace(StandardSpace(1, label="b"), x=5)

    def test_subclass_that_is_not_frozen_raises(self):
        """It could change fields of its frozen base."""
        with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
            dataclasses.dataclass(type("Loose", (Point,), {}))


class TestFirstUse:
    """The first use may be any."""

    def test_first_use_by_many_threads_gives_equal_instances(self):
        """Threads may compile the same method at the same time."""
        made: list[Any] = []
        for _ in range(20):
            cls, start = new_class(), threading.Barrier(4)

            def make(cls: Any = cls, start: threading.Barrier = start) -> None:
                start.wait()
                made.append(cls(1) == cls(1))

            threads = [threading.Thread(target=make) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert [True] * 80 == made

    def test_first_use_by_a_subclass_is_that_of_the_class(self):
        """super() finds the method before it is compiled."""
        cls = new_class()

        class Child(cls):
            def __init__(self) -> None:
                super().__init__(7)

        assert (7, 8) == (Child().x, cls(8).x)

    def test_first_use_after_its_module_was_removed_succeeds(self, monkeypatch):
        """Test tools remove modules, and instances of their classes live on."""
        module = ModuleType("removed_module")
        monkeypatch.setitem(sys.modules, "removed_module", module)
        text = "@dataclass(frozen=True, slots=True)\nclass Left:\n    x: int\n"
        exec(text, vars(module) | {"dataclass": lazy_dataclass.dataclass}, vars(module))
        monkeypatch.delitem(sys.modules, "removed_module")

        assert "Left(x=1)" == repr(module.Left(1))
        assert "removed_module" == module.Left.__init__.__module__

    def test_help_shows_the_constructor_and_its_factories(self):
        """It looks like a class of the standard library, without the address of an object."""
        shown = pydoc.plain(pydoc.render_doc(new_class()))

        assert "New(x: int, tags: list[str] = <factory>) -> None" in shown
        assert "CompiledMethod" not in shown

    def test_type_hints_of_the_constructor_are_those_of_the_fields(self):
        """Frameworks build forms and parsers from them."""
        assert {"x": int, "tags": list[str], "return": type(None)} == typing.get_type_hints(new_class().__init__)

    def test_hash_does_not_use_a_name_of_its_module(self, monkeypatch):
        """A module may define a function with the name of a builtin."""
        monkeypatch.setitem(globals(), "hash", lambda _: "not a number")

        assert isinstance({Named(first="a"): 1}, dict)


class TestOtherProtocols:
    def test_pattern_matches_by_position_and_by_name(self):
        """Positions are those of the fields."""
        match Space(1, z=9):
            case Space(x, y, _, z=z):
                found = (x, y, z)

        assert (1, 20, 9) == found

    @pytest.mark.parametrize("cls", CLASSES)
    def test_weak_references_are_those_of_a_standard_dataclass(self, cls):
        """Slots leave no room for them."""
        assert (standard(cls).__weakrefoffset__ > 0) == (cls.__weakrefoffset__ > 0)
        with pytest.raises(TypeError, match="weak reference"):
            weakref.ref(Point(1))

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_frozen_instance_survives_every_pickle_protocol(self, protocol):
        """Queues and process pools choose the protocol."""
        assert Space(1, tags=["a"]) == pickle.loads(pickle.dumps(Space(1, tags=["a"]), protocol))
