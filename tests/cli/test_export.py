"""`potluck export`: the format that the file's name asks for."""

import pytest
import safetensors.torch
import torch

import potluck as library
from potluck.models.catalogue import find_model

IMAGES = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def expected(finished):
    """What the small level's network computes, built and filled by hand."""
    net = find_model("heterofl-cnn")(0.5, shape=(1, 8, 8), classes=10, hidden=(4, 8, 8, 8))
    net.load_state_dict(safetensors.torch.load_file(finished / "models" / "small.safetensors"))
    with torch.no_grad():
        return net.eval()(IMAGES)


def test_a_program_for_torch_export(potluck, finished, expected, tmp_path):
    told = potluck("export", finished, "--level", "small", "--out", tmp_path / "new" / "small.pt2")
    assert told.code == 0, told
    assert "level small after 3 rounds" in told.words
    program = torch.export.load(tmp_path / "new" / "small.pt2").module()
    torch.testing.assert_close(program(IMAGES), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(program(IMAGES[:1]), expected[:1], atol=1e-5, rtol=1e-5)


def test_a_graph_for_onnx(potluck, finished, expected, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from onnx.reference import ReferenceEvaluator

    told = potluck("export", finished, "--level", "small", "--out", tmp_path / "small.onnx")
    assert told.code == 0, told
    onnx.checker.check_model(tmp_path / "small.onnx")
    evaluator = ReferenceEvaluator(str(tmp_path / "small.onnx"))
    (out,) = evaluator.run(None, {evaluator.input_names[0]: IMAGES.numpy()})
    torch.testing.assert_close(torch.from_numpy(out), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["net.pt", "net.bin", "net", ".onnx", "net.safetensors.gz"])
def test_other_formats_are_refused_with_the_list(potluck, finished, tmp_path, name):
    told = potluck("export", finished, "--level", "small", "--out", tmp_path / name)
    assert told.code == 2
    for suffix in (".safetensors", ".pt2", ".onnx"):
        assert suffix in told.err
    assert list(tmp_path.iterdir()) == []


def test_onnx_without_its_packages(potluck, finished, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.study.formats.find_spec", lambda name: None)
    told = potluck("export", finished, "--level", "small", "--out", tmp_path / "net.onnx")
    assert told.code == 2
    assert "pip install 'potluck[onnx]'" in told.err
    assert list(tmp_path.iterdir()) == []


def test_a_size_between_the_levels(potluck, finished, tmp_path):
    told = potluck("export", finished, "--ratio", "0.75", "--out", tmp_path / "net.safetensors")
    assert told.code == 0, told
    weights = safetensors.torch.load_file(tmp_path / "net.safetensors")
    find_model("heterofl-cnn")(0.75, shape=(1, 8, 8), classes=10, hidden=(4, 8, 8, 8)).load_state_dict(weights)
    for ratio in ("0", "1.5", "-1"):
        told = potluck("export", finished, "--ratio", ratio, "--out", tmp_path / "other.safetensors")
        assert told.code == 2
        assert f"the ratio is {ratio}, but it should be above 0 and at most 1" in told.err


def test_a_run_back_in_python(finished, expected):
    net = library.load(finished).export("small")
    assert not net.training
    with torch.no_grad():
        assert torch.equal(net(IMAGES), expected)
