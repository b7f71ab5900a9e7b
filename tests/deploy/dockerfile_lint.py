"""A small lint for Dockerfiles: the rules of hadolint that matter here, in our own words."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_PINNED = re.compile(r"[\w./-]+:[\w.-]*\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?")
_SECRET = re.compile(r"(?i)password|secret|token|api_?key")


class Instruction(NamedTuple):
    """One instruction, with its continued lines joined."""

    name: str
    text: str


def instructions(dockerfile: str) -> list[Instruction]:
    """Return the instructions, without comments."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), text.strip()) for name, _blank, text in found]


def is_exec_form(text: str) -> bool:
    """Whether a command is a JSON list of words: no shell is in between, and signals arrive."""
    try:
        words = json.loads(text)
    except ValueError:
        return False
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


def problems(dockerfile: str) -> list[str]:
    """Return what is wrong with a Dockerfile."""
    found = instructions(dockerfile)
    stages = {text.split()[-1] for name, text in found if name == "FROM" and " AS " in text}
    wrong = [
        f"{text}: the base image has no exact version"
        for name, text in found
        if name == "FROM"
        and text.split()[0] not in stages
        and not _PINNED.fullmatch(text.split()[0])
    ]
    last = found[max(at for at, one in enumerate(found) if one.name == "FROM") :]
    wrong += [
        f"{name} is missing in the last stage"
        for name in ("USER", "ENTRYPOINT", "HEALTHCHECK", "WORKDIR")
        if not any(one.name == name for one in last)
    ]
    users = [text.partition(":")[0] for name, text in last if name == "USER"]
    if users and users[-1] in ("root", "0"):
        wrong.append("it runs as root")
    for name, text in found:
        command = text.partition("CMD ")[2] if name == "HEALTHCHECK" else text
        if name in ("ENTRYPOINT", "CMD", "HEALTHCHECK") and not is_exec_form(command):
            wrong.append(f"{name} is not in exec form")
        if name == "WORKDIR" and not text.startswith("/"):
            wrong.append(f"WORKDIR {text} is not absolute")
        if name == "ADD":
            wrong.append("ADD instead of COPY")
        if name in ("ENV", "ARG") and _SECRET.search(text):
            wrong.append(f"{name} has a secret")
        if name == "RUN":
            wrong += _run_problems(text)
    return wrong


def _run_problems(text: str) -> list[str]:
    wrong = []
    if "apt-get install" in text or "apt install" in text:
        if "--no-install-recommends" not in text:
            wrong.append("apt installs what is only recommended")
        if "rm -rf /var/lib/apt/lists" not in text:
            wrong.append("apt's lists are left in the layer")
    if re.search(r"\bpip (install|wheel)\b", text) and "--no-cache-dir" not in text:
        wrong.append("pip's cache is left in the layer")
    if re.search(r"\bsudo\b", text):
        wrong.append("sudo is used")
    return wrong
