"""Workers do not outlive whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from processes import alive, gone

import potluck

PARENT = """
import sys
from toys import Remembering, clients, done, jobs, make_site, opened
from potluck.engines.local import Local

site = make_site(Remembering(sys.argv[1]))
engine = Local(2)
opened(engine, site)
print(*(worker.process.pid for worker in engine.workers), flush=True)
done(engine, "sleep_long", jobs(site, clients()))
"""


def test_workers_leave_with_their_parent_even_in_the_middle_of_a_job(tmp_path: Path) -> None:
    here, source = Path(__file__).parent, Path(potluck.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(source)])}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    while len(list(tmp_path.iterdir())) < 2:  # both are at work
        assert parent.poll() is None
        time.sleep(0.05)
    assert len(workers) == 2
    assert all(alive(pid) for pid in workers)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(workers, within=10)
