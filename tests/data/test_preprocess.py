"""Normalisation and augmentation of batches."""

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.random import stream
from potluck.data.preprocess import CropFlip, Flip, Normalise, Scale


def numbered(count: int, size: int = 6) -> torch.Tensor:
    """Images in which no two pixels are alike, and none is black."""
    return 1 + torch.arange(count * 2 * size * size).view(count, 2, size, size)


def test_normalise_by_hand():
    images = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)
    result = Normalise(mean=(0.5, 0.2), std=(0.25, 0.1))(images)
    assert result.dtype == torch.float32
    assert result.flatten().tolist() == pytest.approx([-2, 2, 0, 2], abs=1e-6)
    assert images.flatten().tolist() == [0, 255, 51, 102]


def test_normalise_leaves_float_inputs_alone():
    images = torch.ones(1, 1, 2, 2)
    Normalise((0.5,), (0.5,), scale=1.0)(images)
    assert torch.equal(images, torch.ones(1, 1, 2, 2))


def test_scale_gives_the_unit_range():
    assert Scale()(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])


def test_flip_gives_each_image_or_its_mirror_about_equally_often():
    images = numbered(400)
    flipped = Flip()(images, stream(0, "flip"))
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 160 < int(mirrored.sum()) < 240


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(0, 4))
def test_every_crop_is_a_window_of_the_padded_image(seed, count, pad):
    images = numbered(count)
    padded = torch.nn.functional.pad(images, (pad,) * 4)
    for image, result in zip(padded, CropFlip(pad)(images, stream(seed)), strict=True):
        windows = [image[:, y : y + 6, x : x + 6] for y in range(2 * pad + 1) for x in range(2 * pad + 1)]
        assert any(torch.equal(result, way) for window in windows for way in (window, window.flip(-1)))


def test_every_shift_occurs():
    images = torch.zeros(3000, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 1  # in the middle, so that mirroring does not move it more than a shift could
    places = CropFlip(2)(images, stream(0)).flatten(1).argmax(1)
    assert sorted(set(places.tolist())) == sorted(9 * y + x for y in range(2, 7) for x in range(2, 7))


def test_augmentation_depends_on_the_generator_alone():
    images = numbered(20)
    results = [CropFlip()(images, stream(seed)) for seed in (0, 0, 1)]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("step", [Normalise((0.1,), (0.2,)), Scale(), Flip(), CropFlip(4)])
def test_steps_survive_pickling(step):
    assert pickle.loads(pickle.dumps(step)) == step


def test_bytes_stay_bytes_until_they_are_normalised():
    images = torch.randint(256, (5, 3, 32, 32), dtype=torch.uint8, generator=stream(0))
    result = CropFlip()(images, stream(1))
    assert (result.dtype, result.shape) == (torch.uint8, images.shape)
