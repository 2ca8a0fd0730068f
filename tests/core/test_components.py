from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pydantic
import pytest
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, FieldError, Observer, Reweighter, Scorer, Selector
from dataflex_events.components import check_parameters, parameters


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
