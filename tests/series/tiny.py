"""A preset on the bundled digits that takes no time."""

TINY = """\
paper = "Nobody et al., A Table, Nowhere 2026"

[settings.common]
task.model = { name = "heterofl-cnn", hidden = [4, 4, 4, 4] }
task.rounds = 20
task.evaluate_every = 10
data.source = "digits"
fleet.clients = 14
fleet.cohort = 3
fleet.levels = { big = 1.0, small = 0.5 }
train.lr = 0.05
train.epochs = 1
train.schedule = "multistep"
train.milestones = [10]
engine.name = "serial"

[[presets]]
name = "tiny"
title = "Table 0, digits"
use = ["common"]
cases.iid.data.partition = "iid"
cases.skewed.data.partition = { name = "dirichlet", alpha = 1.0 }

[[presets.rows]]
name = "heterofl"
set.method = { name = "heterofl" }
paper.iid = { big = 90.0, mean = 85.5 }

[[presets.rows]]
name = "fedavg"
set.method = { name = "fedavg" }
cases = ["iid"]
"""
