"""How tensors lie in memory: what is handed on lies row after row from an aligned address, wherever it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.checkpoint import read, save
from potluck.core.tensors import ALIGNMENT, copied, laid_out, plainly_laid, raw_bytes, same_tensors

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def numbers(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).float().view(shape)


def odd_strides(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Tensor:
    return torch.arange(1000.0).as_strided(shape, strides, offset)


ODD = {
    "turned": lambda: numbers(4, 5).t(),
    "channels last": lambda: numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "channels last in 3d": lambda: numbers(2, 3, 2, 2, 2).contiguous(memory_format=torch.channels_last_3d),
    "every other": lambda: numbers(20)[::2],
    "a column": lambda: numbers(6, 6)[:, 2],
    "some columns": lambda: numbers(6, 6)[:, :3],
    "expanded": lambda: torch.ones(1).expand(5),
    "from the second on": lambda: numbers(20)[1:],
    "from the 15th on": lambda: numbers(64)[15:],
    "a row that is not aligned": lambda: numbers(4, 5)[1],
    "a row of one, with the stride of its matrix": lambda: odd_strides((1, 5), (7, 1)),
    "a column of one": lambda: odd_strides((5, 1), (1, 3)),
    "one number": lambda: odd_strides((1, 1, 1), (9, 4, 2)),
    "one channel, channels last": lambda: numbers(2, 1, 3, 3).clone(memory_format=torch.channels_last),
    "one pixel": lambda: numbers(2, 3, 1, 1).clone(memory_format=torch.channels_last),
    "a single one, with stride 0": lambda: odd_strides((1, 3), (0, 1)),
    "a scalar at an odd place": lambda: numbers(9)[3],
}
PLAIN = {
    "a scalar": lambda: torch.tensor(3.0),
    "a row": lambda: numbers(7),
    "a matrix": lambda: numbers(3, 4),
    "images": lambda: numbers(2, 3, 4, 5),
    "sizes of one": lambda: numbers(1, 3, 1),
    "nothing": lambda: torch.zeros(0),
    "no rows": lambda: torch.zeros(0, 3),
    "no columns": lambda: torch.zeros(3, 0),
    "an aligned part": lambda: numbers(64)[16:40],
    "with a gradient": lambda: numbers(3).requires_grad_(),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_what_lies_plainly_is_known_as_such_and_handed_on_as_it_is(kind: str) -> None:
    tensor = PLAIN[kind]()
    assert plainly_laid(tensor)
    assert laid_out({"t": tensor})["t"] is tensor


@pytest.mark.parametrize("kind", ODD)
def test_what_does_not_is_copied_into_place(kind: str) -> None:
    tensor = ODD[kind]()
    assert not plainly_laid(tensor)
    found = laid_out({"t": tensor})["t"]
    assert plainly_laid(found)
    assert torch.equal(found, tensor)
    assert found.dtype == tensor.dtype


@pytest.mark.parametrize("kind", {**ODD, **PLAIN})
def test_a_copy_has_memory_of_its_own_and_lies_plainly(kind: str) -> None:
    tensor = {**ODD, **PLAIN}[kind]()
    found = copied({"t": tensor})["t"]
    assert plainly_laid(found)
    assert torch.equal(found, tensor)
    assert not found.requires_grad
    before = found.clone()
    torch.as_strided(tensor.detach(), (tensor.untyped_storage().nbytes() // 4,), (1,), 0).fill_(-5)
    assert torch.equal(found, before)


def test_only_what_has_to_be_is_copied() -> None:
    plain, odd = numbers(3, 3), numbers(3, 3).t()
    found = laid_out({"plain": plain, "odd": odd})
    assert list(found) == ["plain", "odd"]
    assert found["plain"] is plain
    assert found["odd"] is not odd


def test_what_is_on_another_device_does_not_lie_in_main_memory() -> None:
    assert not plainly_laid(torch.zeros(3, device="meta"))


@st.composite
def views(draw: st.DrawFn) -> Tensor:
    """Any view into a stretch of memory: shape, strides and where it begins."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    strides = [draw(st.integers(0, 30)) for _ in shape]
    whole = torch.arange(500).to(draw(st.sampled_from(TYPES)))
    return whole.as_strided(shape, strides, draw(st.integers(0, 40)))


@given(views())
def test_every_view_is_laid_out_with_its_values(tensor: Tensor) -> None:
    for found in (laid_out({"t": tensor})["t"], copied({"t": tensor})["t"]):
        assert plainly_laid(found)
        assert found.is_contiguous()
        assert found.data_ptr() % ALIGNMENT == 0
        assert found.stride() == torch.empty(tensor.shape).stride()  # as of a tensor that was just made
        assert same_tensors({"t": found}, {"t": tensor})
        assert found.shape == tensor.shape


@given(views())
def test_bytes_are_those_of_the_values_in_the_plain_order(tensor: Tensor) -> None:
    assert bytes(raw_bytes(tensor)) == bytes(raw_bytes(tensor.clone(memory_format=torch.contiguous_format)))
    assert len(raw_bytes(tensor)) == tensor.numel() * tensor.element_size()


@given(st.lists(views(), max_size=6))
def test_what_is_read_from_a_file_lies_plainly(tmp_path_factory: pytest.TempPathFactory, tensors: list[Tensor]) -> None:
    """Also where the file has tensors of odd sizes before it, so that its address is any."""
    path = tmp_path_factory.mktemp("layout") / "t.safetensors"
    content = {str(number): tensor for number, tensor in enumerate(tensors)}
    save(path, content, {})
    found, _ = read(path)
    assert same_tensors(found, content)
    assert all(plainly_laid(tensor) for tensor in found.values())
    assert all(found[name].stride() == torch.empty(content[name].shape).stride() for name in content)


def test_a_file_does_have_tensors_at_odd_addresses(tmp_path: Path) -> None:
    """What the test above rests on."""
    content = {"a": torch.ones(3, dtype=torch.uint8), "b": numbers(5), "c": torch.ones(7, dtype=torch.float16)}
    save(tmp_path / "t", content, {})
    found, _ = read(tmp_path / "t")
    assert all(tensor.data_ptr() % ALIGNMENT == 0 for tensor in found.values())
    found["b"].zero_()  # it is no window into the file
    assert torch.equal(read(tmp_path / "t")[0]["b"], content["b"])


def test_equal_tensors_have_equal_names_types_shapes_and_values() -> None:
    one = {"a": numbers(2, 3), "b": torch.tensor(1)}
    assert same_tensors(one, dict(reversed(one.items())))
    assert same_tensors(one, {**one, "a": numbers(3, 2).view(2, 3)})
    assert same_tensors({"a": numbers(2, 3).t()}, {"a": numbers(2, 3).t().contiguous()})
    for other in (
        {"a": one["a"]},
        {**one, "c": torch.tensor(1)},
        {**one, "b": torch.tensor(1.0)},
        {**one, "a": numbers(3, 2)},
        {**one, "a": one["a"] + 1},
    ):
        assert not same_tensors(one, other)
        assert not same_tensors(other, one)
