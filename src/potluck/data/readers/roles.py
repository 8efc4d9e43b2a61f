"""Plays to speaking roles, by the rules of LEAF (Caldas et al. 2018), from Project Gutenberg's EBook 100.

A line "by William Shakespeare" opens a play, whose title stands above it. Two blanks, a name and a full
stop open a speech; lines set in by four blanks go on with it. The Comedy of Errors alone is not set in.
Names are compared in capitals. A role speaks at least three lines, and a play has more than one role,
which leaves out the sonnets and the poems.
"""

from __future__ import annotations

import re
from itertools import pairwise

SPEECH = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)")
GOES_ON = re.compile(r"    (.*)")
FLUSH_SPEECH = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")
FLUSH_GOES_ON = re.compile(r"(.*)")
AUTHOR = "by William Shakespeare"
FLUSH_PLAY = "THE COMEDY OF ERRORS"
FEWEST_LINES = 3


def split_by_role(text: str) -> dict[str, str]:
    """The text of every speaking role, by a name made of play and role, in order of name."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if AUTHOR in line]
    roles: dict[str, list[str]] = {}
    for start, end in pairwise([*starts, len(lines)]):
        title = title_above(lines, start)
        speeches = speeches_of(lines[start + 1 : end], flush=title == FLUSH_PLAY)
        if len(speeches) > 1:
            for role, spoken in speeches.items():
                if len(spoken) >= FEWEST_LINES:
                    name = re.sub(r"\W+", "_", f"{title}_{role}".replace(" ", "_"))
                    roles.setdefault(name, []).append(one_line(spoken))
    return {name: "".join(texts) for name, texts in sorted(roles.items())}


def title_above(lines: list[str], author: int) -> str:
    """The nearest line with text, two to seven lines above the author's."""
    return next((lines[author - up].strip() for up in range(2, 8) if author >= up and lines[author - up].strip()), "")


def speeches_of(lines: list[str], flush: bool) -> dict[str, list[str]]:
    """What each role of one play says, line by line."""
    opens, goes_on = (FLUSH_SPEECH, FLUSH_GOES_ON) if flush else (SPEECH, GOES_ON)
    spoken: dict[str, list[str]] = {}
    speaker = ""
    for line in lines:
        if opening := opens.match(line):
            speaker = opening[1].upper()
            if flush and speaker.startswith("ACT "):
                speaker = ""
            else:
                spoken.setdefault(speaker, []).append(opening[2])
        elif speaker and (more := goes_on.match(line)):
            if flush and more[1].startswith("<"):
                speaker = ""
            else:
                spoken[speaker].append(more[1])
    return spoken


def one_line(spoken: list[str]) -> str:
    """Lines joined by blanks; runs of blanks become one."""
    return re.sub("  +", " ", "".join(line + " " for line in spoken))
