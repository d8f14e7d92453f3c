"""The supervisor, with children that are small Python programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.cli.processes import ChildDied, Processes, free_ports

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(600)",
]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.kill()


def wait_until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {within_s} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_child_that_dies_is_reported_with_its_last_lines(processes: Processes) -> None:
    program = "import sys; [print('line', n) for n in range(50)]; sys.exit('no such model')"
    child = processes.start("target", [sys.executable, "-c", program])
    child.process.wait(10)
    with pytest.raises(ChildDied) as caught:
        processes.check()
    message = str(caught.value)
    assert "target died (exit status 1)" in message
    assert "no such model" in message
    assert "line 49" in message
    assert "line 20\n" not in message


def test_a_child_that_is_killed_is_reported_by_signal(processes: Processes) -> None:
    child = processes.start("draft", SLEEPER)
    processes.check()
    child.process.kill()
    child.process.wait(10)
    with pytest.raises(ChildDied, match=r"draft died \(killed by SIGKILL\)"):
        processes.check()


def test_a_child_that_ends_well_has_died_too(processes: Processes) -> None:
    processes.start("draft", [sys.executable, "-c", ""]).process.wait(10)
    with pytest.raises(ChildDied, match="exit status 0"):
        processes.check()


def test_groups_are_stopped_in_order(processes: Processes, tmp_path: Path) -> None:
    order = tmp_path / "order"
    program = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    open(sys.argv[1], 'a').write(sys.argv[2] + ' ')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(600)"
    )
    children = [
        processes.start(name, [sys.executable, "-c", program, str(order), name])
        for name in ("a", "b", "c")
    ]
    wait_until(lambda: all("up" in child.tail() for child in children))
    processes.stop([["c"], ["b", "a"]], grace_s=10)
    first, *rest = order.read_text().split()
    assert (first, sorted(rest)) == ("c", ["a", "b"])


def test_what_does_not_stop_within_the_grace_is_killed(processes: Processes) -> None:
    child = processes.start("stubborn", STUBBORN)
    wait_until(lambda: "up" in child.tail())
    started = time.monotonic()
    processes.stop([["stubborn"]], grace_s=0.3)
    assert child.process.returncode == -signal.SIGKILL
    assert time.monotonic() - started >= 0.3


def test_what_no_group_names_is_ended_all_the_same(processes: Processes) -> None:
    child = processes.start("forgotten", SLEEPER)
    processes.stop([["other"]], grace_s=5)
    assert child.process.returncode is not None


def test_an_interrupt_while_stopping_kills_all_at_once(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = processes.start("stubborn", STUBBORN)
    wait_until(lambda: "up" in child.tail())

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("outrider.cli.processes.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        processes.stop([["stubborn"]], grace_s=600)
    assert child.process.returncode == -signal.SIGKILL


PARENT = """
import sys, time
from pathlib import Path
from outrider.cli.processes import Processes
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = Processes(Path(sys.argv[1])).start("child", sleep)
print(child.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the tether is Linux's")
def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        time.sleep(0.3)  # the tether holds once its interpreter has started
        parent.kill()
    wait_until(lambda: not alive(pid))


def test_a_child_does_not_share_the_terminals_group(processes: Processes) -> None:
    child = processes.start("child", SLEEPER)
    assert os.getpgid(child.process.pid) != os.getpgid(0)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
