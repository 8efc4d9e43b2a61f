"""The papers' experiments as data: a file per paper, with what varies and what the paper reports."""
