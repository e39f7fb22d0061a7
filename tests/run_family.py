"""The processes of one `producer run` that brought its own server and worker: who is who, and when all are up."""

import subprocess

import psutil

from tests.processes import descendants
from tests.waiting import wait_until

MEMBERS = ("producer", "server", "supervisor", "worker")


def family_of(run: "subprocess.Popen[bytes]") -> dict[str, int]:
    """Their pids by name; a member that is not there is left out."""
    children = psutil.Process(run.pid).children()
    servers = [child.pid for child in children if "valkey" in child.name()]
    supervisors = [child for child in children if child.pid not in servers]
    workers = [child.pid for supervisor in supervisors for child in supervisor.children()]
    found = ([run.pid], servers, [child.pid for child in supervisors], workers)
    assert all(len(pids) <= 1 for pids in found), descendants(run.pid)
    return {name: pids[0] for name, pids in zip(MEMBERS, found, strict=True) if pids}


def await_family(run: "subprocess.Popen[bytes]", *, timeout_s: float = 60) -> dict[str, int]:
    """Wait until all of them are there."""
    wait_until(lambda: len(family_of(run)) == len(MEMBERS), timeout_s=timeout_s, description="all of the run is up")
    return family_of(run)
