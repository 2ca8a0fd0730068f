"""Which domains a mix policy draws from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dataflex_events import ConfigError
from dataflex_events.domains import domain_table
from dataflex_events.plan import make_plan
from dataflex_events.pools import DomainTable

# Rows: a b a c - b   (the fifth has no domain)
FOUND = ("a", "b", "c")
CODES = np.array([0, 1, 0, 2, -1, 1], dtype=np.int32)
ALL = CODES[CODES >= 0]


def table(codes: np.ndarray, found: tuple[str, ...] = FOUND, **policy: Any) -> Any:
    params = policy.pop("params", {})
    plan = make_plan(
        {"mechanism": "mix", "actuator": {"name": policy.pop("mixer", "static"), "params": params}, **policy}
    )
    assert plan.mix is not None
    return domain_table(found, codes, plan.mix)


def refusal(*args: Any, **policy: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        table(*args, **policy)
    return [str(issue) for issue in refused.value.issues]


def test_by_default_all_domains_of_the_data():
    made = table(ALL)
    assert made.names == FOUND
    assert made.codes.tolist() == [0, 1, 0, 2, 1]
    assert made.sizes.tolist() == [2, 2, 1]


def test_listed_domains_come_in_the_order_of_the_list():
    made = table(ALL, domains=["c", "a", "b"])
    assert made.names == ("c", "a", "b")
    assert made.codes.tolist() == [1, 2, 1, 0, 2]


def test_rows_of_unlisted_domains_are_an_error():
    assert refusal(ALL, domains=["a"]) == [
        "dataflex.domains: does not list 'b', 'c', the domain of 3 rows; list it, or say `unlisted: ignore` "
        "(never draw these rows) or `unlisted: keep` (they are domains too)"
    ]


def test_or_never_drawn_or_domains_too():
    assert table(ALL, domains=["b"], unlisted="ignore").codes.tolist() == [-1, 0, -1, -1, 0]
    kept = table(ALL, domains=["b"], unlisted="keep")
    assert kept.names == ("b", "a", "c")
    assert kept.codes.tolist() == [1, 0, 1, 2, 0]


def test_a_listed_domain_without_rows_is_an_error_with_the_nearest_name():
    assert refusal(ALL, ("math", "code", "logic"), domains=["maths", "code", "logic", "math"]) == [
        "dataflex.domains: no row of the data has the domain 'maths' (did you mean 'math'?)"
    ]


def test_rows_without_a_domain_are_an_error_that_names_the_first():
    assert refusal(CODES) == [
        "dataflex.domain_key: is the column 'domain', and 1 of 6 rows have no domain there (row 4): give them one, or "
        "say `unlisted: ignore` to never draw them"
    ]
    assert table(CODES, unlisted="ignore").codes.tolist() == [0, 1, 0, 2, -1, 1]
    many = refusal(np.full(20, -1, dtype=np.int32), ())
    assert "20 of 20 rows have no domain there (row 0, 1, 2, 3, 4, ...)" in many[0]
    assert refusal(np.full(20, -1, dtype=np.int32), (), unlisted="ignore") == many


def test_parameters_that_do_not_fit_the_domains_of_the_data():
    (issue,) = refusal(ALL, mixer="reward_gap", params={"floor": 0.4})
    assert issue.startswith("dataflex.actuator.params: ")
    (issue,) = refusal(ALL, params={"proportions": {"a": 1, "b": 2}})
    assert "'c'" in issue
    (issue,) = refusal(ALL, initial={"a": 1, "b": 1, "d": 1}, warmup_step=1)
    assert issue.startswith("dataflex.initial: unknown domain 'd'")


def test_everything_that_is_wrong_at_once():
    assert len(refusal(CODES, domains=["a", "d"])) == 3


def test_ten_thousand_domains_of_one_row():
    names = tuple(f"domain {number}" for number in range(10_000))
    made = table(np.arange(10_000, dtype=np.int32), names)
    assert made.sizes.tolist() == [1] * 10_000


@pytest.mark.parametrize(("domains", "dtype"), [(2**15 - 1, np.int16), (2**15, np.int32)])
def test_codes_are_as_small_as_the_number_of_domains_allows(domains: int, dtype: Any) -> None:
    table = DomainTable.from_codes(np.arange(-1, domains), [str(number) for number in range(domains)])
    assert table.codes.dtype == dtype
    assert table.codes.tolist() == list(range(-1, domains))
