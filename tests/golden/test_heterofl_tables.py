"""Tables 7 to 9 of HeteroFL: ratio, parameters, "FLOPs" and megabytes of every combination of levels."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest
from counting import build, example, example_for, parameters

from potluck.parts.cost.paper_counts import heterofl_flops

LEVELS = {"a": 1, "b": 1 / 2, "c": 1 / 4, "d": 1 / 8, "e": 1 / 16}

TABLES = {
    "heterofl-cnn": """
        a 1.00 1.6 M 80.5 M 5.94
        a-b 0.63 974.1 K 50.5 M 3.72
        a-c 0.53 827.9 K 42.9 M 3.16
        a-d 0.51 791.1 K 41.0 M 3.02
        a-e 0.50 781.7 K 40.5 M 2.98
        a-b-c 0.44 682.4 K 35.4 M 2.60
        a-b-d 0.42 657.8 K 34.1 M 2.51
        a-b-e 0.42 651.6 K 33.8 M 2.49
        a-c-d 0.36 560.4 K 29.1 M 2.14
        a-c-e 0.36 554.1 K 28.7 M 2.11
        a-d-e 0.34 529.6 K 27.4 M 2.02
        a-b-c-d 0.33 518.1 K 26.9 M 1.98
        a-b-c-e 0.33 513.4 K 26.7 M 1.96
        a-b-d-e 0.32 495.0 K 25.7 M 1.89
        a-c-d-e 0.27 421.9 K 21.9 M 1.61
        a-b-c-d-e 0.27 415.8 K 21.6 M 1.59
        b 1.00 391.4 K 20.5 M 1.49
        b-c 0.63 245.1 K 12.9 M 0.94
        b-d 0.53 208.3 K 11.0 M 0.79
        b-e 0.51 199.0 K 10.4 M 0.76
        b-c-d 0.44 171.9 K 9.1 M 0.66
        b-c-e 0.42 165.6 K 8.7 M 0.63
        b-d-e 0.36 141.1 K 7.4 M 0.54
        b-c-d-e 0.33 130.5 K 6.9 M 0.50
        c 1.00 98.9 K 5.3 M 0.38
        c-d 0.63 62.1 K 3.4 M 0.24
        c-e 0.53 52.8 K 2.9 M 0.20
        c-d-e 0.44 43.6 K 2.4 M 0.17
        d 1.00 25.3 K 1.4 M 0.10
        d-e 0.63 15.9 K 909.5 K 0.06
        e 1.00 6.6 K 400.5 K 0.03
    """,
    "preresnet18": """
        a 1.00 9.6 M 330.2 M 36.71
        a-b 0.63 6.0 M 206.8 M 22.95
        a-c 0.53 5.1 M 175.7 M 19.50
        a-d 0.51 4.9 M 167.9 M 18.64
        a-e 0.50 4.8 M 165.9 M 18.43
        a-b-c 0.44 4.2 M 144.9 M 16.07
        a-b-d 0.42 4.1 M 139.7 M 15.49
        a-b-e 0.42 4.0 M 138.4 M 15.35
        a-c-d 0.36 3.5 M 119.0 M 13.20
        a-c-e 0.36 3.4 M 117.6 M 13.05
        a-d-e 0.34 3.3 M 112.4 M 12.48
        a-b-c-d 0.33 3.2 M 110.1 M 12.19
        a-b-c-e 0.33 3.2 M 109.1 M 12.09
        a-b-d-e 0.32 3.1 M 105.1 M 11.65
        a-c-d-e 0.27 2.6 M 89.6 M 9.93
        a-b-c-d-e 0.27 2.6 M 88.4 M 9.78
        b 1.00 2.4 M 83.3 M 9.19
        b-c 0.63 1.5 M 52.3 M 5.75
        b-d 0.53 1.3 M 44.4 M 4.88
        b-e 0.51 1.2 M 42.4 M 4.67
        b-c-d 0.44 1.1 M 36.7 M 4.02
        b-c-e 0.42 1.0 M 35.3 M 3.88
        b-d-e 0.36 866.3 K 30.1 M 3.30
        b-c-d-e 0.33 800.7 K 27.9 M 3.05
        c 1.00 603.8 K 21.2 M 2.30
        c-d 0.63 377.8 K 13.4 M 1.44
        c-e 0.53 321.1 K 11.3 M 1.22
        c-d-e 0.44 264.6 K 9.4 M 1.01
        d 1.00 151.8 K 5.5 M 0.58
        d-e 0.63 95.1 K 3.5 M 0.36
        e 1.00 38.4 K 1.5 M 0.15
    """,
    "transformer": """
        a 1.00 19.3 M 1.4 B 73.49
        a-b 0.74 14.2 M 991.4 M 54.12
        a-c 0.62 11.8 M 829.0 M 45.20
        a-b-c 0.57 10.9 M 757.6 M 41.72
        a-d 0.56 10.7 M 754.3 M 40.94
        a-b-d 0.53 10.2 M 707.8 M 38.87
        a-e 0.53 10.2 M 718.6 M 38.86
        a-b-e 0.51 9.8 M 684.0 M 37.49
        b 1.00 9.1 M 614.8 M 34.74
        a-b-c-d 0.45 8.8 M 603.4 M 33.39
        a-c-d 0.45 8.6 M 599.6 M 32.93
        a-b-c-e 0.44 8.5 M 585.5 M 32.34
        a-c-e 0.43 8.3 M 575.8 M 31.54
        a-b-d-e 0.41 7.9 M 548.2 M 30.21
        a-d-e 0.39 7.5 M 526.0 M 28.70
        a-b-c-d-e 0.37 7.2 M 496.6 M 27.55
        b-c 0.74 6.8 M 452.4 M 25.83
        a-c-d-e 0.35 6.8 M 467.0 M 25.76
        b-d 0.62 5.7 M 377.7 M 21.57
        b-c-d 0.58 5.2 M 348.5 M 20.02
        b-e 0.56 5.1 M 342.0 M 19.49
        b-c-e 0.54 4.9 M 324.7 M 18.63
        c 1.00 4.4 M 290.1 M 16.92
        b-c-d-e 0.46 4.2 M 278.7 M 16.07
        b-d-e 0.45 4.1 M 274.9 M 15.79
        c-d 0.75 3.3 M 215.4 M 12.66
        c-e 0.62 2.8 M 179.7 M 10.57
        c-d-e 0.58 2.6 M 166.7 M 9.85
        d 1.00 2.2 M 140.7 M 8.39
        d-e 0.75 1.7 M 105.0 M 6.31
        e 1.00 1.1 M 69.3 M 4.23
    """,
}
ROWS = [(model, line.strip()) for model, table in TABLES.items() for line in table.strip().splitlines()]


@cache
def costs(model: str, level: str) -> tuple[int, int]:
    """(parameters, paper's FLOPs) of one level."""
    net = build(model, LEVELS[level])
    return parameters(net), heterofl_flops(net, example_for(model))


def short(value: float) -> str:
    """One decimal and the largest unit that leaves at least one digit before it."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return str(value)


def row(model: str, combination: str) -> str:
    """A table row: plain means over the levels, the ratio against the first and largest of them."""
    members = [costs(model, level) for level in combination.split("-")]
    size, flops = mean(size for size, _ in members), mean(flops for _, flops in members)
    return f"{combination} {size / members[0][0]:.2f} {short(size)} {short(flops)} {4 * size / 2**20:.2f}"


@pytest.mark.parametrize(("model", "line"), ROWS)
def test_row_as_printed(model: str, line: str) -> None:
    assert row(model, line.split()[0]) == line


@pytest.mark.parametrize(
    ("model", "sizes", "flops"),
    [
        ("heterofl-cnn", [1556874, 391370, 98922, 25274, 6594], [80504320, 20493056, 5306752, 1418432, 400480]),
        (
            "preresnet18",
            [9622090, 2408746, 603802, 151762, 38350],
            [330246144, 83334144, 21219840, 5498112, 1471104],
        ),
        (
            "transformer",
            [19263999, 9107967, 4435455, 2200575, 1108479],
            [1367965696, 614776832, 290086912, 140718080, 69277696],
        ),
    ],
)
def test_exact_numbers_behind_the_levels(model: str, sizes: list[int], flops: list[int]) -> None:
    assert [costs(model, level) for level in LEVELS] == list(zip(sizes, flops, strict=True))


def test_a_true_preresnet18_has_two_blocks_per_stage() -> None:
    sizes = [parameters(build("preresnet18", ratio, blocks=(2, 2, 2, 2))) for ratio in LEVELS.values()]
    assert sizes == [11172170, 2796714, 701018, 176178, 44510]


@pytest.mark.parametrize(
    ("model", "without", "flops"),
    [
        ("heterofl-cnn", [1554954, 390410, 98442, 25034, 6474], 80134656),
        ("preresnet18", [9616074, 2405738, 602298, 151010, 37974], 328935424),
    ],
)
def test_the_norms_of_the_ablation(model: str, without: list[int], flops: int) -> None:
    # Tables 4 and 5 print no sizes: every norm but "none" has the two parameters per channel of batch norm.
    for norm in ("in", "gn", "ln"):
        nets = [build(model, ratio, norm=norm) for ratio in LEVELS.values()]
        assert [parameters(net) for net in nets] == [costs(model, level)[0] for level in LEVELS]
        # The authors' counter knows no group norm, which is what all three are made of: it costs nothing.
        assert heterofl_flops(nets[0], example_for(model)) == flops
    assert [parameters(build(model, ratio, norm="none")) for ratio in LEVELS.values()] == without
    assert heterofl_flops(build(model, norm="none"), example_for(model)) == flops


@pytest.mark.parametrize("model", ["heterofl-cnn", "preresnet18", "transformer"])
def test_the_tables_do_not_depend_on_the_rounding(model: str) -> None:
    nearest = [parameters(build(model, ratio, rounding="round")) for ratio in LEVELS.values()]
    assert nearest == [costs(model, level)[0] for level in LEVELS]


def test_the_vocabulary_the_paper_states_is_one_word_short_of_its_megabytes() -> None:
    assert f"{4 * parameters(build('transformer', classes=33_278)) / 2**20:.2f}" == "73.48"
    assert f"{4 * parameters(build('transformer', classes=33_279)) / 2**20:.2f}" == "73.49"


def test_baselines_of_the_mnist_table() -> None:
    net = build("lg-mlp")
    assert (parameters(net), heterofl_flops(net, example_for("lg-mlp"))) == (633_226, 1_264_128)
    assert (short(633_226), short(1_264_128), f"{4 * 633_226 / 2**20:.2f}") == ("633.2 K", "1.3 M", "2.42")


def test_baselines_of_the_cifar_table_are_the_mlp_not_the_network_that_was_trained() -> None:
    net = build("lg-mlp", shape=(3, 32, 32))
    size, flops = parameters(net), heterofl_flops(net, example((3, 32, 32)))
    assert (size, flops) == (1_804_682, 3_607_040)
    assert (short(size), short(flops), f"{4 * size / 2**20:.2f}") == ("1.8 M", "3.6 M", "6.88")
    assert parameters(build("lg-cnn")) == 64_102
