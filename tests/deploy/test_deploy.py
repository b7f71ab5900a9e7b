"""The examples in deploy/: names that exist, times that fit, rights, and a probe that works."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.cli.main import main
from holdfast.model.durations import seconds_of
from holdfast.settings import DEFAULTS, Settings
from holdfast.worker.app_loader import load_registry

from .dockerfile_lint import instructions, is_exec_form, problems

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
UNIT = DEPLOY / "systemd" / "holdfast.service"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "holdfast.yaml").read_text())
)
PROBE = DEPLOY / "docker" / "probe.py"
DRAIN_SECONDS = float(str(DEFAULTS["drain_seconds"]))


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [one for one in DEPLOY.rglob("*") if one.is_file()], ids=str)
def test_every_variable_of_ours_is_a_setting(file: Path):
    known = {f"HOLDFAST_{name.upper()}" for name in Settings.__struct_fields__}
    assert set(re.findall(r"HOLDFAST_[A-Z_]+", file.read_text("utf-8", "replace"))) <= known


def test_the_page_lists_every_file():
    page = (DEPLOY / "README.md").read_text()
    helpers = {"README.md", "jobs.py"}
    for file in DEPLOY.rglob("*"):
        if file.is_file() and file.name not in helpers and "__pycache__" not in file.parts:
            assert f"({file.relative_to(DEPLOY)})" in page, file


def command_exists(words: list[str]) -> bool:
    """Whether this is a command of ``holdfast``."""
    return (
        main.get_command(main.make_context("holdfast", [], resilient_parsing=True), words[0])
        is not None
    )


# --- systemd ------------------------------------------------------------------------------------


def unit_values(name: str) -> list[str]:
    return [
        line.partition("=")[2]
        for line in UNIT.read_text().splitlines()
        if line.startswith(f"{name}=")
    ]


def test_the_unit_drains_before_it_is_killed_and_does_not_repeat_bad_settings():
    assert unit_values("KillMode") == ["mixed"]
    drain = next(one for one in unit_values("Environment") if "DRAIN_SECONDS" in one)
    assert float(unit_values("TimeoutStopSec")[0]) > seconds_of("drain", drain.partition("=")[2])
    assert unit_values("RestartPreventExitStatus") == ["2"]
    assert unit_values("User") not in ([], ["root"])
    (start,) = unit_values("ExecStart")
    assert command_exists(start.split()[1:])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("broken", [False, True])
def test_systemd_accepts_the_unit(tmp_path: Path, broken: bool):
    text = UNIT.read_text().replace("/srv/shop/.venv/bin/holdfast", shutil.which("true") or "")
    if broken:  # the control
        text = text.replace("KillMode=mixed", "KillMode=gently")
    unit = tmp_path / "holdfast.service"
    unit.write_text(text)
    done = subprocess.run(
        [
            shutil.which("systemd-analyze") or "",
            "verify",
            "--man=no",
            "--recursive-errors=no",
            str(unit),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    # Of this unit only: the machine's own units are not our concern.
    said = [line for line in done.stderr.splitlines() if "holdfast.service" in line]
    assert bool(said) is broken, done.stderr


# --- Docker -------------------------------------------------------------------------------------


def test_the_dockerfile_keeps_the_rules():
    assert problems(DOCKERFILE) == []


@pytest.mark.parametrize(
    ("rule", "instead", "said"),
    [
        ("FROM python:3.11.11-slim-bookworm\n", "FROM python:latest\n", "no exact version"),
        ("FROM python:3.11.11-slim-bookworm\n", "FROM python\n", "no exact version"),
        ("USER 10001:10001\n", "", "USER is missing"),
        ("USER 10001:10001\n", "USER root\n", "runs as root"),
        ('ENTRYPOINT ["holdfast"]', "ENTRYPOINT holdfast", "ENTRYPOINT is not in exec form"),
        ('CMD ["run", "jobs.py"]', "CMD run jobs.py", "CMD is not in exec form"),
        ("HEALTHCHECK", "# HEALTHCHECK", "HEALTHCHECK is missing"),
        ("WORKDIR /app", "WORKDIR app", "not absolute"),
        ("COPY src src", "ADD src src", "ADD instead of COPY"),
        ("COPY src src", "RUN apt-get install -y gcc", "lists are left"),
        ("COPY src src", "RUN apt-get install -y gcc", "only recommended"),
        ("pip install --no-cache-dir", "pip install", "cache is left"),
        ("PYTHONUNBUFFERED=1", "API_KEY=x", "has a secret"),
    ],
)
def test_a_broken_rule_is_found(rule: str, instead: str, said: str):
    assert rule in DOCKERFILE
    assert any(said in one for one in problems(DOCKERFILE.replace(rule, instead)))


def test_what_the_image_copies_is_in_the_checkout_and_its_command_works():
    for name, text in instructions(DOCKERFILE):
        if name == "COPY" and not text.startswith("--from"):
            for source in text.split()[:-1]:
                assert (ROOT / source).exists(), source
    found = dict(instructions(DOCKERFILE))
    assert is_exec_form(found["CMD"])
    assert command_exists(re.findall(r'"([^"]+)"', found["CMD"]))
    assert "greet" in load_registry(str(DEPLOY / "docker" / "jobs.py")).tasks


# --- compose ------------------------------------------------------------------------------------


def test_compose_runs_two_daemons_on_one_server_after_the_migration():
    services = COMPOSE["services"]
    assert set(services) == {"db", "migrate", "worker-a", "worker-b"}
    names = set()
    for service in (services["worker-a"], services["worker-b"]):
        assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert seconds_of("grace", service["stop_grace_period"]) > DRAIN_SECONDS
        assert service["healthcheck"]["test"] == ["CMD", "python", "/app/probe.py", "ready"]
        assert service["read_only"] is True
        assert service["tmpfs"] == ["/tmp"], "its socket is there"  # noqa: S108
        assert service["environment"]["HOLDFAST_STORE"].startswith("postgresql://holdfast:")
        names.add(service["environment"]["HOLDFAST_WORKER_ID"])
    assert len(names) == 2
    assert services["migrate"]["depends_on"]["db"]["condition"] == "service_healthy"
    assert command_exists(services["migrate"]["command"])
    assert re.fullmatch(r"postgres:\d+\.\d+[\w.-]*", services["db"]["image"])
    (mount,) = services["db"]["volumes"]
    assert mount.partition(":")[0] in COMPOSE["volumes"]
    context = DEPLOY / "docker" / services["worker-a"]["build"]["context"]
    assert (context / services["worker-a"]["build"]["dockerfile"]).is_file()
    assert "${POSTGRES_PASSWORD:?" in services["db"]["environment"]["POSTGRES_PASSWORD"]


# --- Kubernetes ---------------------------------------------------------------------------------


def pod_of(kind: str) -> dict[str, Any]:
    (found,) = [one for one in KUBERNETES if one["kind"] == kind]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_pods_have_few_rights_and_a_place_for_their_socket(kind: str):
    pod = pod_of(kind)
    (container,) = pod["containers"]
    assert command_exists(container["args"])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/tmp"}  # noqa: S108
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }
    assert pod["enableServiceLinks"] is False, "they would look like settings"
    assert "memory" in container["resources"]["limits"]
    assert not container["image"].endswith(":latest")
    assert ":" in container["image"]
    (store,) = [one for one in container["env"] if one["name"] == "HOLDFAST_STORE"]
    assert "secretKeyRef" in store["valueFrom"], "the password is not in this file"


def test_the_deployment_drains_and_its_probes_reach_the_port():
    pod = pod_of("Deployment")
    (container,) = pod["containers"]
    drain = next(
        one["value"] for one in container["env"] if one["name"] == "HOLDFAST_DRAIN_SECONDS"
    )
    assert pod["terminationGracePeriodSeconds"] > seconds_of("drain", drain)
    for name, asked in (("startup", "live"), ("liveness", "live"), ("readiness", "ready")):
        probe = container[f"{name}Probe"]
        assert probe["httpGet"] == {"path": f"/health/{asked}", "port": "metrics"}
        assert probe["timeoutSeconds"] >= 5
    deployment = next(one for one in KUBERNETES if one["kind"] == "Deployment")
    selected = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()
    job = next(one for one in KUBERNETES if one["kind"] == "Job")
    assert not selected.items() <= job["spec"]["template"]["metadata"]["labels"].items()


# --- the probe ----------------------------------------------------------------------------------


@pytest.fixture
def port(tmp_path: Path) -> Iterator[str]:
    """The port of a daemon."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--metrics-port", "0"],
        cwd=tmp_path,
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        address = next(line for line in daemon.stdout if line.startswith("metrics: "))
        yield address.rpartition(":")[2].partition("/")[0]
    finally:
        daemon.terminate()
        daemon.communicate(timeout=30)


def probe(port: str, *asked: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROBE), *asked],
        env={**os.environ, "HOLDFAST_METRICS_PORT": port},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_the_probe_asks_a_daemon(port: str):
    for asked, answer in (("live", '{"status":"ok"}\n'), ("ready", '{"status":"ready"}\n')):
        done = probe(port, asked)
        assert (done.returncode, done.stdout) == (0, answer)
    assert probe(port, "well").returncode == 2


def test_the_probe_fails_without_a_daemon():
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = str(free.getsockname()[1])
    done = probe(unused, "ready")
    assert done.returncode == 1
    assert f"no answer on port {unused}" in done.stderr
