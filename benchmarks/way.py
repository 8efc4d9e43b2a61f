"""How many of Potluck's functions and files a weight passes on its way through a round: the fewer, the plainer.

A round of the contract's small federation is played on the serial engine after one that warms up, and every function of
Potluck's that is called from `Server.play` on is noted once: from the state to the clients' networks, through their
training, and back into the state. Functions without a name (lambdas, comprehensions) belong to those around them.

python benchmarks/way.py heterofl [fedhm ...] [-v]
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import potluck
from potluck.contract import bench
from potluck.core.clock import Clock
from potluck.core.server import Server, first_state
from potluck.core.store import Memory
from potluck.engines import make_engine
from potluck.methods import find

HOME = Path(potluck.__file__).parent
NETWORK = bench.__file__  # where the network is that clients train: it stands for the user's

Function = tuple[str, str]
"""A file of Potluck's, and the name of a function in it."""


@contextmanager
def noted(called: set[Function]) -> Iterator[None]:
    """Note what is called for a while, in this thread and in those that it starts."""

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        file = code.co_filename
        if event == "call" and file.startswith(f"{HOME}/") and file != NETWORK and not code.co_name.startswith("<"):
            called.add((str(Path(file).relative_to(HOME)), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def way(tried: bench.Bench) -> set[Function]:
    """The functions that are called in a warm round."""
    experiment, clock, called = tried.experiment, Clock(), set[Function]()
    engine = make_engine("serial")
    engine.open(experiment.site, experiment.desk, Memory(), clock)
    server, site = Server(experiment.recipe, engine, clock=clock), experiment.site
    state, _ = server.play(first_state(tried.method, site.context(0)), tried.clients(), site.context(0))
    clients = tried.clients()
    with noted(called):
        server.play(state, clients, site.context(1))
    return called


def main() -> None:
    """A line per method; with -v, every function."""
    for name in [argument for argument in sys.argv[1:] if argument != "-v"]:
        found = way(bench.make_bench(find(name)()))
        print(f"{name}: {len(found)} functions in {len({file for file, _ in found})} files")
        for file, function in sorted(found) if "-v" in sys.argv else ():
            print(f"    {file} {function}")


if __name__ == "__main__":
    main()
