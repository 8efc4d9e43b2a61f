"""What an update must be like to be used: every reason to refuse one, and none to refuse a good one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.errors import UpdateError
from potluck.core.form import form_of
from potluck.core.guard import Guard, norm, obstacle
from potluck.core.rows import rows_of
from potluck.core.types import Client, Job, Level, Tensors, Update

LEVEL = Level("all", 1.0)
RUN = "a" * 64
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
NOT_FINITE = [math.nan, math.inf, -math.inf]
HALF_FINITE = [complex(math.nan, 0), complex(0, math.nan), complex(math.inf, 1), complex(1, -math.inf)]
GONE = object()  # in the place of a tensor that is not sent
USUAL = Guard()


def sent() -> Tensors:
    """What was sent, and what an honest client may answer."""
    return {"w": torch.ones(2, 3), "b": torch.zeros(3), "count": torch.tensor(4)}


def job(payload: Tensors | None = None) -> Job:
    return Job(Client(5, LEVEL, 10, (0, 1)), 3, sent() if payload is None else payload, run=RUN)


def update(**changes: object) -> Update:
    """The honest answer, with some tensors replaced."""
    payload: dict[str, Any] = {**sent(), **changes}
    left = {name: tensor for name, tensor in payload.items() if tensor is not GONE}
    return Update(job().client, left, 1.0, "", 3, RUN)


def reason(found: Update, asked: Job | None = None, guard: Guard = USUAL) -> str:
    """Why an update is refused; empty if it is not."""
    asked = asked or job()
    try:
        guard.check(found, asked, form_of(sent()))
    except UpdateError as error:
        return str(error)
    return ""


def test_an_honest_answer_passes() -> None:
    assert reason(update()) == ""
    assert reason(update(w=torch.randn(2, 3), b=torch.full((3,), 100.0), count=torch.tensor(5))) == ""
    assert reason(update(w=nn.Parameter(torch.ones(2, 3)))) == ""
    assert reason(update(w=torch.ones(3, 2).t())) == ""
    assert reason(replace(update(), seconds=-1.0)) == ""  # says nothing


def test_nothing_is_a_good_answer_where_nothing_was_asked_for() -> None:
    Guard().check(Update(job().client, {}, round=3, run=RUN), job({}), {})


# ---- whose answer, and to what ----


def test_a_clients_own_reason_is_the_reason() -> None:
    assert reason(replace(update(), failure="flat battery", payload={})) == "flat battery"


def test_an_answer_of_another_run_is_refused() -> None:
    found = reason(replace(update(), run="b" * 64))
    assert found == "it is for run bbbbbbbbbbbb, but this is run aaaaaaaaaaaa"
    assert reason(replace(update(), run="")) == "it is for run (none), but this is run aaaaaaaaaaaa"
    assert reason(update(), replace(job(), run="")) == "it is for run aaaaaaaaaaaa, but this is run (none)"


@pytest.mark.parametrize("round", [2, 4, 0, -1])
def test_an_answer_of_another_round_is_refused(round: int) -> None:
    assert reason(replace(update(), round=round)) == f"it is for round {round + 1}, but round 4 is being played"


def test_somebody_elses_answer_is_refused() -> None:
    found = reason(replace(update(), client=replace(job().client, id=6)))
    assert found == "it says that it is client 6's, but client 5 was asked"


# ---- what kind of thing ----


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, "it is a NoneType, but it should be a dictionary of named tensors"),
        ([], "it is a list, but it should be a dictionary of named tensors"),
        (torch.ones(2), "it is a Tensor, but it should be a dictionary of named tensors"),
        ({1: torch.ones(2)}, "it names a tensor 1, but names are text"),
        ({None: torch.ones(2)}, "it names a tensor None, but names are text"),
    ],
)
def test_what_is_not_named_tensors_is_refused(payload: object, expected: str) -> None:
    assert reason(replace(update(), payload=payload)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "'w' is a NoneType, but it should be a tensor"),
        (3.0, "'w' is a float, but it should be a tensor"),
        ([[1.0]], "'w' is a list, but it should be a tensor"),
        (torch.ones(2, 3).numpy(), "'w' is a ndarray, but it should be a tensor"),
        (torch.ones(2, 3).to_sparse(), "'w' is not a dense tensor but torch.sparse_coo"),
        (torch.ones(2, 3, device="meta"), "'w' has a shape but no values (it is on the meta device)"),
    ],
)
def test_what_is_not_a_dense_tensor_with_values_is_refused(value: object, expected: str) -> None:
    assert reason(update(w=value)) == expected


@pytest.mark.filterwarnings("ignore:.*quantize", "ignore:.*nested tensors", "ignore:Sparse CSR tensor support")
def test_tensors_of_strange_kinds_are_refused() -> None:
    for strange in (
        torch.ones(2, 3).to_sparse_csr(),
        torch.quantize_per_tensor(torch.ones(2, 3), 1.0, 0, torch.quint8),
        torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
        torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=torch.jagged),
    ):
        assert reason(update(w=strange)).startswith("'w' is not a dense tensor")


# ---- names, shapes, types ----


def test_missing_and_unknown_names_are_told() -> None:
    assert reason(update(w=GONE)) == "it lacks 'w'"
    assert reason(update(w=GONE, b=GONE)) == "it lacks 'w', 'b'"
    assert reason(update(more=torch.ones(1))) == "it has the unknown 'more'"
    assert reason(update(w=GONE, more=torch.ones(1))) == "it lacks 'w' and has the unknown 'more'"
    assert reason(replace(update(), payload={})) == "it lacks 'w', 'b', 'count'"
    many = {f"x{number}": torch.ones(1) for number in range(10)}
    assert reason(update(**many)) == "it has the unknown 'x0', 'x1', 'x2' and 7 more"


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3, 1), (1, 3), (), (0,), (2, 0)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    assert reason(update(w=torch.ones(shape))) == f"'w' has the shape {shape}, but it should have (2, 3)"


@pytest.mark.parametrize("dtype", [*FLOATS[1:], *WHOLE, torch.complex64])
def test_other_types_are_refused(dtype: torch.dtype) -> None:
    assert reason(update(w=torch.ones(2, 3).to(dtype))) == f"'w' is of {dtype}, but it should be of torch.float32"


def test_the_order_of_names_is_no_matter() -> None:
    assert reason(replace(update(), payload=dict(reversed(update().payload.items())))) == ""


# ---- how large ----


def refused(tensors: Tensors, issued: Tensors | None = None, bound: float = 1e6) -> str:
    """Why these values are refused, in whatever type they are."""
    found = replace(update(), payload=tensors)
    try:
        Guard(bound).check(found, job(issued or {}), form_of(tensors))
    except UpdateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"w": torch.ones(2, 3)}, ""),
        ({"w": torch.ones(3, 2)}, r"'w' has the shape \(2, 3\), but it should have \(3, 2\)"),
        ({"w": torch.ones(2, 3, dtype=torch.float64)}, "'w' is of torch.float32, but it should be of torch.float64"),
        ({"w": torch.ones(2, 3), "b": torch.ones(2)}, "it lacks 'b'"),
        ({}, "it has the unknown 'w'"),
    ],
)
def test_rows_of_a_stack_must_look_like_what_was_asked_for(asked: Tensors, reason: str) -> None:
    for row in rows_of({"w": torch.ones(4, 2, 3)}):
        found = replace(update(), payload=row)
        if not reason:
            Guard().check(found, job({}), form_of(asked))
            continue
        with pytest.raises(UpdateError, match=reason):
            Guard().check(found, job({}), form_of(asked))


@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bound", [1e6, math.inf])
def test_values_that_are_not_finite_are_refused_by_name(dtype: torch.dtype, bad: float, bound: float) -> None:
    tensors = {"fine": torch.ones(2), "layer.bad": torch.tensor([0.0, bad, 1.0]).to(dtype)}
    assert refused(tensors, bound=bound) == "'layer.bad' has values that are not finite"


@pytest.mark.parametrize("bad", HALF_FINITE)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("bound", [1e6, math.inf])
def test_neither_part_of_a_complex_number_may_be(dtype: torch.dtype, bad: complex, bound: float) -> None:
    assert refused({"z": torch.tensor([1j, bad], dtype=dtype)}, bound=bound) == "'z' has values that are not finite"


def test_complex_numbers_pass_and_are_measured() -> None:
    assert refused({"z": torch.tensor([1 + 2j, 3j])}) == ""
    assert norm({"z": torch.tensor([3 + 4j, 12j])}) == pytest.approx(13.0)
    assert refused({"z": torch.tensor([1e9 + 0j])}) == "its norm is 1e+09, but it may be 1e+06 at most (guard.bound)"


@pytest.mark.parametrize("value", [1e39, -1e39, 1e300, float(torch.finfo(torch.float64).max)])
@pytest.mark.parametrize("bound", [1e6, math.inf])
def test_what_overflows_float32_is_not_finite_either(value: float, bound: float) -> None:
    """Means are taken in the type of the state, but models are used in float32."""
    assert refused({"w": torch.tensor([0.0, value], dtype=torch.float64)}, bound=bound) == (
        "'w' has values that are not finite"
    )


@pytest.mark.parametrize("value", [3e38, -3e38])
def test_what_is_finite_may_have_a_norm_that_float32_has_not(value: float) -> None:
    tensors = {"w": torch.full((10,), value)}
    assert norm(tensors) == pytest.approx(abs(value) * math.sqrt(10))
    assert refused(tensors, bound=math.inf) == ""
    assert "its norm is 9.49e+38" in refused(tensors)


@pytest.mark.parametrize(
    ("value", "bound", "passes"),
    [
        (1e5, 1e6, True),
        (0.99e6, 1e6, True),
        (1.01e6, 1e6, False),
        (1e30, 1e6, False),
        (2.0, 1.0, False),
        (0.5, 1.0, True),
        (1e30, math.inf, True),
        (1e30, 1e31, True),
    ],
)
def test_the_bound_is_in_multiples_of_ones_where_little_was_issued(value: float, bound: float, passes: bool) -> None:
    for count in (1, 4, 1000):  # however many numbers there are
        tensors = {"w": torch.full((count,), value)}
        assert (refused(tensors, {"w": torch.zeros(count)}, bound) == "") == passes


def test_the_bound_is_in_multiples_of_what_was_issued_where_that_is_more() -> None:
    issued = {"w": torch.full((4,), 1000.0)}
    assert refused({"w": torch.full((4,), 9_000.0)}, issued, bound=10) == ""
    assert refused({"w": torch.full((4,), 11_000.0)}, issued, bound=10) == (
        "its norm is 2.2e+04, but it may be 2e+04 at most (guard.bound)"
    )


def test_one_large_number_among_many_small_ones_counts() -> None:
    spike = torch.zeros(10_000)
    spike[17] = 1e9
    assert refused({"w": spike}).startswith("its norm is 1e+09, but it may be 1e+08")


def test_whole_numbers_have_a_size_but_are_always_finite() -> None:
    for dtype in WHOLE:
        assert refused({"count": torch.tensor([1, 0, 1]).to(dtype)}) == ""
    assert refused({"count": torch.tensor(10**5)}) == ""
    huge = {"count": torch.tensor([2**62, -(2**63)])}
    assert "its norm is 1.03e+19" in refused(huge)
    assert refused(huge, bound=math.inf) == ""
    mixed = {"count": torch.tensor(2**62), "flag": torch.tensor([True]), "w": torch.tensor([1e38])}
    assert refused(mixed, bound=math.inf) == ""


def test_nothing_at_all_has_no_size() -> None:
    assert refused({"empty": torch.zeros(0), "also": torch.zeros(3, 0)}) == ""
    assert norm({}) == 0.0
    assert refused({}) == ""
    assert refused({"empty": torch.zeros(0), "huge": torch.tensor([3e38, 3e38])}, bound=math.inf) == ""


def test_checking_changes_nothing() -> None:
    found, asked = update(w=torch.randn(2, 3)), job()
    before = {name: tensor.clone() for name, tensor in found.payload.items()}
    assert reason(found, asked) == ""
    assert all(torch.equal(found.payload[name], tensor) for name, tensor in before.items())
    assert all(torch.equal(asked.payload[name], tensor) for name, tensor in sent().items())


VALUES = st.lists(st.floats(-(2.0**60), 2.0**60, width=32), max_size=30)


@given(VALUES, VALUES, st.sampled_from([torch.float32, torch.float64]), st.booleans())
def test_the_norm_is_that_of_all_numbers_together(
    one: list[float], other: list[float], dtype: torch.dtype, turned: bool
) -> None:
    first: Tensor = torch.tensor(one).to(dtype)
    second = torch.tensor([other, other]).t() if turned else torch.tensor([other, other])
    exact = math.sqrt(math.fsum(value**2 for value in (*one, *other, *other)))
    assert norm({"one": first, "other": second}) == pytest.approx(exact, rel=1e-5, abs=1e-18)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_finite_float32_numbers_always_have_a_finite_norm(values: list[float]) -> None:
    found = norm({"w": torch.tensor(values)})
    assert math.isfinite(found)
    assert found == pytest.approx(math.hypot(*values), rel=1e-5, abs=1e-18)


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=9),
    st.sampled_from([1.0, 1e3, 1e6, 1e30, math.inf]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_what_passes_is_finite_and_within_the_bound(values: list[float], bound: float, dtype: torch.dtype) -> None:
    tensors = {"w": torch.tensor(values).to(dtype)}
    if refused(tensors, bound=bound) == "":
        assert all(map(math.isfinite, values))
        assert math.hypot(*values) <= bound * math.sqrt(len(values)) * (1 + 1e-5)
    elif all(map(math.isfinite, values)):
        assert math.hypot(*values) >= bound * math.sqrt(len(values)) * (1 - 1e-5)


def test_what_stays_on_a_client_is_checked_for_its_kind_alone() -> None:
    assert obstacle({"own": torch.tensor([math.nan]), "any": torch.ones(3, dtype=torch.complex64)}) == ""
    assert "'own' is a NoneType" in obstacle({"own": None})
