"""A real shell that keeps its state from one command to the next, like a reader's."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from .pages import Command, matches

PATIENCE_SECONDS = 20.0
_LOOK_AGAIN_SECONDS = 0.02
_LOOKING = re.compile(
    r"(holdfast (--\S+ \S+ )?(status|top|doctor|jobs (list|show)|(dead|failed) (groups|list|show)"
    r"|queues list|workers list|schedules list|journal dump|audit list)|curl|cat|ls)\b"
)
"""Commands that only read: they are repeated until their output matches."""
_END = "--end-of-command--"
_METRICS = re.compile(r"metrics: http://127\.0\.0\.1:(\d+)/")
_API = re.compile(r"is at http://127\.0\.0\.1:(\d+)")
USUAL_PORT = "9090"
USUAL_API_PORT = "8080"
USUAL_SERVER = "postgresql://shop@db/shop"
"""The server in the pages: replaced by the server of the test."""
_CURL = """curl() {
  python -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[-1]).read().decode())' "$@"
}"""
"""For machines without curl."""


class Shell:
    """Bash in a directory. Its background processes end with it.

    Pages use port 9090, and several run at once: each daemon gets a port of its own, which replaces
    9090 in commands and is replaced by 9090 in their output. Likewise 8080 of the HTTP API, and
    ``USUAL_SERVER``.
    """

    def __init__(
        self, directory: Path, environment: dict[str, str], server: str = USUAL_SERVER
    ) -> None:
        self._directory = directory
        self._started: list[int] = []
        self._killed = False
        self._port = USUAL_PORT
        self._api_port = USUAL_API_PORT
        self._server = server
        bash = shutil.which("bash")
        assert bash is not None
        self._bash = subprocess.Popen(
            [bash, "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self._status = 0
        self.run("set -m")
        if shutil.which("curl") is None:
            self.run(_CURL)

    @property
    def status(self) -> int:
        """The exit code of the last command."""
        return self._status

    def run(self, line: str) -> str:
        """Run a command to its end; return its output."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        # `echo $?` shows the code of the command before, as it does for a reader.
        text = f"(exit {self._status})\n{line}\n__code=$?; echo; echo {_END} $__code\n"
        self._bash.stdin.write(text)
        self._bash.stdin.flush()
        printed: list[str] = []
        for one in self._bash.stdout:
            if one.startswith(_END):
                self._status = int(one.split()[-1])
                return _without_notices("".join(printed).removesuffix("\n"))
            printed.append(one)
        raise AssertionError(f"the shell ended at {line!r}: {''.join(printed)}")

    def check(self, command: Command) -> None:
        """Run a command and compare its output; fail with both texts if they differ."""
        if command.line.endswith("&"):
            self._check_started(command)
            return
        if command.line.startswith("kill -9"):
            self._killed = True
        give_up = time.monotonic() + PATIENCE_SECONDS
        before = self._status
        while True:
            printed = self._as_usual(self.run(self._here(command.line)))
            if matches(command.output, printed):
                return
            if not _LOOKING.match(command.line) or time.monotonic() > give_up:
                raise AssertionError(_differ(command, printed))
            self._status = before
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _check_started(self, command: Command) -> None:
        """Start a background command and wait until it has printed the expected output."""
        path = self._directory / f".started-{len(self._started)}"
        line = self._here(command.line).removesuffix("&").rstrip()
        path.touch()
        errors = "" if "2>" in line else f"2> {path}.log"
        self._started.append(int(self.run(f"{line} > {path} {errors} &\necho $!")))
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            printed = path.read_text()
            if metrics := _METRICS.search(printed):
                self._port = metrics[1]
            if api := _API.search(printed):
                self._api_port = api[1]
            printed = self._as_usual(printed)
            if matches(f"...\n{command.output}\n...", printed):
                return
            if time.monotonic() > give_up or not _alive(self._started[-1]):
                raise AssertionError(_differ(command, printed))
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _here(self, line: str) -> str:
        line = line.replace(f"--port {USUAL_API_PORT}", "--port 0")
        line = line.replace(USUAL_PORT, self._port).replace(USUAL_API_PORT, self._api_port)
        return line.replace(USUAL_SERVER, f"'{self._server}'")

    def _as_usual(self, printed: str) -> str:
        printed = printed.replace(f":{self._port}", f":{USUAL_PORT}")
        printed = printed.replace(f":{self._api_port}", f":{USUAL_API_PORT}")
        return printed.replace(self._server, USUAL_SERVER)

    def close(self) -> None:
        """End the background processes; those that the page did not kill must end cleanly."""
        if self._bash.poll() is None:
            for process in self._started:
                self.run(f"kill {process} 2> /dev/null; wait {process}")
                if not self._killed:
                    assert self._status in (0, 127), f"a daemon ended with {self._status}"
            self._bash.communicate("exit\n", timeout=PATIENCE_SECONDS)

    def abandon(self) -> None:
        """Kill everything at once, after a failure."""
        for process in self._started:
            try:
                os.killpg(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._bash.kill()
        self._bash.communicate()


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a reader: our commands, and no settings."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "USER": "ada",
        "LOGNAME": "ada",
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "error",
        "HOLDFAST_METRICS_PORT": "0",
    }


def _without_notices(printed: str) -> str:
    """Remove the shell's own messages about the processes that it started."""
    lines = printed.splitlines(keepends=True)
    ours = re.compile(r"(\[\d+\].*|(\S*/)?bash: line \d+: +\d+ (Killed|Terminated).*)\n?")
    return "".join(line for line in lines if not ours.fullmatch(line))


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _differ(command: Command, printed: str) -> str:
    return f"$ {command.line}\n--- the page says\n{command.output}\n--- it printed\n{printed}"
