"""Servers as process groups, and who took the machine's time while one was measured."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class EngineError(Exception):
    """An engine did not start, or did not do what it was asked; the message says what it said."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server that says when it is ready. It ends with this program, however that ends."""

    def __init__(self, engine, setup, shape, log):
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        self.command = engine.serve(setup, shape, port)
        self.log = log
        self.began = time.perf_counter()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                self.command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=log.parent,  # some leave a log file where they are started
                env={**os.environ, **engine.env},
                start_new_session=True,
            )
        try:
            self._wait_until_ready(self.base_url + engine.ready, engine.ready_limit_s)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, url, limit_s):
        while time.perf_counter() - self.began < limit_s:
            if self.process.poll() is not None:
                raise EngineError(f"the server ended before it was ready:\n{tail(self.log)}")
            with contextlib.suppress(urllib.error.URLError, OSError):
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.02)
        raise EngineError(f"the server was not ready after {limit_s} s:\n{tail(self.log)}")

    def pause(self):
        self._signal(signal.SIGSTOP)

    def go_on(self):
        self._signal(signal.SIGCONT)

    def stop(self):
        self.go_on()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self._signal(signal.SIGKILL)  # and children that outlived their parent
        self.process.wait()

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def usage(self):
        """Resident MiB now and at the most, and CPU seconds, of the process group."""
        rss, peak, cpu = 0.0, 0.0, 0.0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(words[2]) != self.process.pid:
                    continue
                status = dict(
                    line.split(":", 1) for line in (entry / "status").read_text().splitlines()
                )
            except OSError:
                continue
            rss += int(status.get("VmRSS", "0 kB").split()[0]) / 1024
            peak += int(status.get("VmHWM", "0 kB").split()[0]) / 1024
            cpu += (int(words[11]) + int(words[12])) / TICKS
        return rss, peak, cpu


def tail(log, size=1500):
    return log.read_text(errors="replace")[-size:]


def run_command(command, log, limit_s=900):
    """(stdout, stderr, CPU seconds) of a command that must succeed."""
    before = children_seconds()
    with log.open("wb") as err:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=err,
            stdin=subprocess.DEVNULL,
            cwd=log.parent,  # some leave a log file where they are started
            start_new_session=True,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise EngineError(f"no end after {limit_s} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise EngineError(f"exit code {process.returncode}:\n{tail(log)}")
    return out, log.read_text(errors="replace"), children_seconds() - before


def children_seconds():
    times = os.times()
    return times.children_user + times.children_system


def own_seconds():
    times = os.times()
    return times.user + times.system


@dataclass
class MachineTime:
    """CPU seconds of all cores since the machine started."""

    busy: float
    steal: float
    all: float

    @staticmethod
    def now():
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, idle, wait, irq, softirq, steal = (int(word) / TICKS for word in words)
        busy = user + nice + system + irq + softirq
        return MachineTime(busy, steal, busy + idle + wait + steal)

    def foreign_share_since(self, before, own):
        """The share of the machine that went to others: programs, and other virtual machines."""
        busy = max(0.0, self.busy - before.busy - own)
        return (busy + self.steal - before.steal) / max(self.all - before.all, 1e-3)
