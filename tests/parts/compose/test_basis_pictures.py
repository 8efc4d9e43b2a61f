"""What is shown of bases and coefficients is what the paper's figures show."""

from __future__ import annotations

import pytest
import torch

from potluck.core.panels import Heatmap, Histogram
from potluck.parts.compose.pictures import basis_panels, column_means, gram


def test_a_gram_matrix_worked_out_by_hand() -> None:
    basis = torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]], [[0.0, -1.0]]])  # three pieces of one input, a kernel of two
    assert gram(basis).tolist() == [[5, 3, -2], [3, 9, 0], [-2, 0, 1]]


def test_column_means_worked_out_by_hand() -> None:
    coefficients = torch.tensor([[1.0, -3.0, 0.0, 4.0], [-2.0, -2.0, 6.0, 0.0]])  # two outputs, two groups, R2 = 2
    assert column_means(coefficients, 2).tolist() == [2, 2, 2, 3]


@pytest.mark.parametrize("count", [1, 5, 64])
def test_a_small_basis_is_shown_entry_by_entry(count: int) -> None:
    basis = torch.randn(count, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    (panel,) = basis_panels({"conv": basis}, {})
    assert isinstance(panel, Heatmap)
    assert panel.title == "conv: V Vᵀ"
    rows = basis.flatten(1).double()
    torch.testing.assert_close(panel.values, rows @ rows.T)


def test_of_a_large_basis_the_entries_off_the_diagonal_are_counted() -> None:
    basis = 2 * torch.eye(65, 72)
    basis[0, 1] = 0.5  # its product with the second piece is 1, with itself 4.25
    (panel,) = basis_panels({"conv": basis.view(65, 8, 3, 3)}, {})
    assert isinstance(panel, Histogram)
    assert panel.values.shape == (65 * 64,)
    assert sorted(panel.values.tolist())[-3:] == [0, 1, 1]
    assert panel.title == f"conv: V Vᵀ off the diagonal (mean on it: {(64 * 4 + 4.25) / 65:.3g})"


def test_coefficients_are_shown_by_layer_and_width() -> None:
    bases = {"a": torch.eye(2, 4), "b": torch.eye(3, 4)}
    coefficients = {
        "1.0": {"a": torch.ones(4, 8), "b": -torch.ones(5, 6)},
        "0.5": {"a": torch.ones(2, 4)},
    }
    panels = basis_panels(bases, coefficients)
    assert [panel.title for panel in panels] == [
        "a: V Vᵀ",
        "b: V Vᵀ",
        "a, width 1.0: mean |U| of a column",
        "a, width 0.5: mean |U| of a column",
        "b, width 1.0: mean |U| of a column",
    ]
    assert [tuple(panel.values.shape) for panel in panels[2:]] == [(16,), (4,), (10,)]  # type: ignore[union-attr]
    assert all((panel.values == 1).all() for panel in panels[2:])  # type: ignore[union-attr]
