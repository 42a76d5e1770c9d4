"""Starts programs under mpirun, on this machine or over a pair of network namespaces."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

MPIRUN = shutil.which("mpirun")
# Tests run as root in containers, with more processes than cores.
OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
PREFIX = []  # in front of mpirun


def mpirun(processes, *command, options=(), **kwargs):
    return subprocess.run([*PREFIX, MPIRUN, *OPTIONS, *options, "-n", str(processes), *map(str, command)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=kwargs.pop("timeout", 300), **kwargs)


def children(pid):
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def rank_of(pid):
    for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
            return int(entry.split(b"=")[1])
    return None


def alive(pid):
    try:
        return " Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except FileNotFoundError:
        return False


def wait_for(true, seconds, what):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Job:
    """A program under mpirun that a test looks at, or kills, while it runs."""

    def __init__(self, processes, *command):
        self.mpirun = subprocess.Popen([MPIRUN, *OPTIONS, "-n", str(processes), *map(str, command)],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, start_new_session=True)
        wait_for(lambda: len(self._ranks()) == processes, 60, "the processes")
        self.pids = self._ranks()

    def _ranks(self):
        found = {}
        for pid in children(self.mpirun.pid):
            try:
                rank = rank_of(pid)
            except (FileNotFoundError, PermissionError):
                continue
            if rank is not None:
                found[rank] = pid
        return found

    def cpu_seconds(self, rank):
        fields = pathlib.Path(f"/proc/{self.pids[rank]}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, timeout):
        """Status, stdout and stderr. No process of the job may be left then."""
        try:
            out, err = self.mpirun.communicate(timeout=timeout)
        finally:
            for pid in [self.mpirun.pid, *self.pids.values()]:
                if alive(pid) and self.mpirun.poll() is None:
                    os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(alive(pid) for pid in self.pids.values()), 30, "the end of every process")
        return self.mpirun.returncode, out, err
