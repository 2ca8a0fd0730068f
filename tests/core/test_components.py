from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pydantic
import pytest
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, FieldError, Observer, Reweighter, Scorer, Selector
from dataflex_events.parameters import check_parameters, parameters


@dataclass
class Example(Observer):
    required: int
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    how: Literal["mean", "sum"] = "mean"
    names: list[str] = field(default_factory=list)
    note: str | None = None
    shared: ClassVar[int] = 7
    _state: int = field(default=0, init=False)


@dataclass(frozen=True)
class Frozen(Observer):
    ratio: float = 1.0


def mistakes(**values: Any):
    with pytest.raises(pydantic.ValidationError) as caught:
        Example(**values)
    return {".".join(map(str, error["loc"])): error["type"] for error in caught.value.errors()}


def test_parameters_are_the_fields_of_the_dataclass():
    assert parameters(Example) == {"required": ..., "ratio": 0.5, "how": "mean", "names": [], "note": None}


def test_a_class_that_is_no_dataclass_has_no_parameters():
    class Plain(Observer):
        ratio: float = 1.0

    assert parameters(Plain) == {}


def test_all_wrong_values_are_found_at_once():
    assert mistakes(required="three", ratio=2.0, how="median", names=[1]) == {
        "required": "int_type",
        "ratio": "less_than_equal",
        "how": "literal_error",
        "names.0": "string_type",
    }


@pytest.mark.parametrize("value", [True, "0.5", None, [0.5]])
def test_a_number_must_be_a_number(value):
    assert list(mistakes(required=1, ratio=value)) == ["ratio"]


def test_an_integer_is_a_number_and_becomes_one():
    example = Example(required=1, ratio=1)
    assert type(example.ratio) is float
    assert Frozen(ratio=2) == Frozen(ratio=2.0)
    assert type(Frozen(ratio=2).ratio) is float


@dataclass
class Tuples(Observer):
    plain: tuple[int, int] = (1, 2)
    many: tuple[float, ...] = ()
    perhaps: tuple[str, ...] | None = None
    inside: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bounded: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (1,)
    bare: tuple = ()


def test_a_list_will_do_where_a_tuple_is_meant_because_yaml_has_no_tuples():
    given = Tuples(plain=[3, 4], many=[1, 0.5], perhaps=["a"], inside={"x": [[0, 1]]}, bounded=[2], bare=[1, "b"])
    assert given == Tuples((3, 4), (1.0, 0.5), ("a",), {"x": [(0.0, 1.0)]}, (2,), (1, "b"))
    assert type(given.plain) is type(given.perhaps) is type(given.inside["x"][0]) is tuple


@pytest.mark.parametrize(
    "values", [{"plain": [1]}, {"plain": [1, "2"]}, {"plain": "12"}, {"many": 1.0}, {"bounded": [0]}, {"bounded": []}]
)
def test_a_list_that_does_not_fit_is_still_refused(values):
    with pytest.raises(pydantic.ValidationError):
        Tuples(**values)


def test_a_float_is_no_integer():
    assert list(mistakes(required=1.5)) == ["required"]


def test_values_can_be_checked_without_making_the_component():
    assert check_parameters(Example, {"required": 3}) == {
        "required": 3,
        "ratio": 0.5,
        "how": "mean",
        "names": [],
        "note": None,
    }
    with pytest.raises(pydantic.ValidationError) as caught:
        check_parameters(Example, {"requird": 3, "ratio": -1})
    assert {error["type"] for error in caught.value.errors()} == {"missing", "extra_forbidden", "greater_than"}


def test_a_subclass_inherits_parameters_and_adds_its_own():
    @dataclass
    class Child(Example):
        extra: int = 1

    assert list(parameters(Child)) == ["required", "ratio", "how", "names", "note", "extra"]
    assert Child(required=1).extra == 1


@pytest.mark.parametrize("base", [Scorer, Reweighter, Selector])
def test_a_component_without_its_method_cannot_be_made(base):
    @dataclass
    class Unfinished(base):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()


def test_a_field_that_no_run_has_is_an_error_where_the_class_is_written():
    with pytest.raises(FieldError, match=r"Misspelt.fields: .*'advantage'.*did you mean 'advantages'"):

        class Misspelt(Scorer):
            fields = ("advantage",)


def test_one_field_may_be_written_as_a_string():
    class One(Scorer):
        fields = "reward"

    assert One.fields == ("reward",)


def test_fields_may_depend_on_a_parameter():
    @dataclass
    class Chooses(Observer):
        signal: Literal["reward", "entropy"] = "reward"

        @property
        def fields(self):
            return (self.signal,)

    assert Chooses(signal="entropy").fields == ("entropy",)


def test_a_method_that_cannot_be_called_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"^Wide\.score must take the arguments \(batch\)$"):

        class Wide(Scorer):
            def score(self, batch: Batch, extra: int) -> Tensor:  # type: ignore[override]
                return batch["reward"]

    with pytest.raises(TypeError, match=r"^Narrow\.select must take the arguments \(scores, batch\)$"):

        class Narrow(Selector):
            def select(self, scores: Tensor) -> Tensor:  # type: ignore[override]
                return scores > 0
