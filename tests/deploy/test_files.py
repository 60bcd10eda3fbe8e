"""What `deploy/` says holds together, and is what the hub's own code says."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from rmhub import env
from rmhub.hubs import ROLES, Hub
from tests import ROOT
from tests.deploy.reading import (
    COMPOSE,
    DEPLOY,
    HUB,
    IMAGE,
    MANIFESTS,
    PODS,
    UNITS,
    Unit,
    config_map,
    environment_file,
    role_of,
    stages,
)

FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
# What each of them may add to the command of its role.
_LISTENS = re.compile(r" --host \S+ --port \S+")
_NAMED = re.compile(r" -n \S+")


def _bare(role: str, command: Sequence[str]) -> list[str]:
    text = " ".join(command[1:])
    if role == "web":
        assert _LISTENS.search(text), text
        text = _LISTENS.sub("", text)
    return _NAMED.sub("", text).split() if role == "worker" else text.split()


def _commands() -> list[tuple[str, str, list[str]]]:
    found = [("compose", name, service["command"]) for name, service in HUB.items()]
    found += [("kubernetes", name, pod["containers"][0]["command"]) for name, pod in PODS.items()]
    found += [("systemd", unit.name, unit.command) for unit in UNITS]
    return found


@pytest.mark.parametrize(("where", "name", "command"), _commands(), ids=lambda one: one if isinstance(one, str) else "")
def test_each_process_is_started_as_the_hub_starts_it(where: str, name: str, command: list[str]) -> None:
    assert command[0].endswith("python")
    assert _bare(role_of(name), command) == list(ROLES[role_of(name)])


def test_up_starts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMHUB_PIPELINE_LIVE", "1")
    monkeypatch.setenv("RMHUB_SMTP_LISTEN", "127.0.0.1:2525")
    processes = Hub("one", "postgresql://127.0.0.1/one", "redis://127.0.0.1/0", tmp_path, 8000).processes(pipeline=True)
    started = {process.name: _bare(process.name, list(process.argv)) for process in processes}
    assert started == {role: list(words) for role, words in ROLES.items() if role != "migrate"}


def test_every_role_has_its_place_everywhere() -> None:
    optional = {"mail", "live"}  # where they are switched on
    assert {role_of(name) for name in HUB} == set(ROLES) - optional
    assert set(PODS) == set(ROLES) - optional
    assert {role_of(unit.name) for unit in UNITS} == set(ROLES)
    assert [role_of(name) for name in HUB].count("web") == [role_of(name) for name in HUB].count("worker") == 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    known = env._asked | {f"{name}_FILE" for name in env._asked}
    named = set(re.findall(r"\bRMHUB_[A-Z_]+\b", path.read_text()))
    assert named <= known, named - known


@pytest.mark.parametrize("where", ["compose", "kubernetes", "systemd"])
def test_the_hub_takes_these_settings(where: str, tmp_path: Path) -> None:
    given: Mapping[str, str] = {
        "compose": HUB["web1"]["environment"],
        "kubernetes": config_map(),
        "systemd": environment_file(),
    }[where]
    told = {
        "DATABASE_URL": "postgresql://rmhub:x@db:5432/rmhub",
        "REDIS_URL": "redis://valkey:6379/0",
        "RMHUB_SECRET_KEY": secrets.token_urlsafe(50),
        "RMHUB_SECRET_KEYS": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    }
    files = {name for name in given if name.endswith("_FILE")}
    assert all(name in given or f"{name}_FILE" in files for name in told)
    settings = {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", text) for name, text in given.items()}
    for name, value in told.items():
        settings.pop(name, None)
        if f"{name}_FILE" in files:
            settings[f"{name}_FILE"] = str(tmp_path / name)
            (tmp_path / name).write_text(value)
        else:
            settings[name] = value
    settings["RMHUB_VAR"] = str(tmp_path)
    # As `check --deploy` sees them: secure behind TLS, nothing unknown, nothing that contradicts.
    check = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **settings},
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stderr


def _seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_nothing_is_killed_while_it_drains() -> None:
    compose, pods, units = HUB["web1"]["environment"], config_map(), environment_file()
    for settings, patience in (
        (compose, _seconds(HUB["web1"]["stop_grace_period"])),
        (pods, PODS["web"]["terminationGracePeriodSeconds"]),
        (units, int(Unit(DEPLOY / "systemd/rmhub-web@.service").one("Service", "TimeoutStopSec"))),
    ):
        assert int(settings["RMHUB_DRAIN_SECONDS"]) > 0
        assert int(settings["RMHUB_DRAIN_SECONDS"]) + int(settings["RMHUB_FINISH_SECONDS"]) < patience
    # A probe that asks every few seconds has to have seen it before the server is gone.
    ready = PODS["web"]["containers"][0]["readinessProbe"]
    assert ready["failureThreshold"] * ready["periodSeconds"] < int(pods["RMHUB_DRAIN_SECONDS"])


# ---- images ----

_PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.-]+)?|[a-z0-9./-]+@sha256:[0-9a-f]{64}")


def test_images_are_pinned() -> None:
    built = stages()
    images = [step.source for step in built.values() if step.source not in built]
    images += [service["image"] for service in COMPOSE["services"].values()]
    images += [pod["containers"][0]["image"] for pod in PODS.values()]
    assert [image for image in images if not _PINNED.fullmatch(image)] == []


def test_the_images_have_no_build_tools_and_no_root() -> None:
    built = stages()
    assert list(built)[-1] == "hub"
    for name in ("hub", "pipeline"):
        chain = [built[name]]
        while chain[-1].source in built:
            chain.append(built[chain[-1].source])
        assert "build" not in [step.name for step in chain]
        runs = " ".join(run for step in chain for run in step.all("RUN"))
        assert not re.search(r"\b(uv|pip|gcc|make|build-essential)\b", runs)
        users = [user for step in reversed(chain) for user in step.all("USER")]
        assert users[-1] == "10001:10001"
        assert [command for step in chain for command in step.all("CMD")]
        assert all(copied.startswith("--from=") for step in chain for copied in step.all("COPY"))
    assert "10001" in built["base"].all("RUN")[0]


def test_the_image_holds_what_the_hub_imports() -> None:
    copied = {words.split()[0] for words in stages()["build"].all("COPY")}
    assert {"manage.py", "rmhub", "partners", "messaging", "rmhub_client", "templates", "static", "docs"} <= copied
    kept = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied if "." not in name} <= set(kept)


# ---- compose ----


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_compose_runs_nothing_as_root_and_writes_to_volumes_only(name: str) -> None:
    service = COMPOSE["services"][name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    targets = [volume.split(":")[1] for volume in service.get("volumes", []) if not volume.endswith(":ro")]
    assert set(targets) <= {"/var/lib/rmhub", "/var/lib/postgresql"}
    if service["image"].startswith(IMAGE):
        assert service["environment"]["RMHUB_VAR"] in targets
        assert any(entry.startswith("/tmp") for entry in service["tmpfs"])


def test_compose_holds_together() -> None:
    services = COMPOSE["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"]), name
        assert set(service["networks"]) <= set(COMPOSE["networks"]), name
        files = [text for name, text in service.get("environment", {}).items() if name.endswith("_FILE")]
        assert {Path(text).name for text in files} <= set(service.get("secrets", ())), name
        named = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert all(volume in COMPOSE["volumes"] or volume.startswith("../") for volume in named), name
    for name, service in HUB.items():
        waits = service["depends_on"].get("migrate", {}).get("condition")
        assert waits == (None if name == "migrate" else "service_completed_successfully")
        health = " ".join(service.get("healthcheck", {}).get("test", ()))
        assert name == "migrate" or "/livez" in health or f"health --role {role_of(name)}" in health
    proxy = services["proxy"]["environment"]["HUB_SERVERS"].split()
    assert proxy == [f"{name}:8000" for name in HUB if role_of(name) == "web"]
    subnet = COMPOSE["networks"]["outside"]["ipam"]["config"][0]["subnet"]
    assert HUB["web1"]["environment"]["RMHUB_TRUSTED_PROXIES"] == subnet


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_the_secrets_that_compose_wants_are_made_once(tmp_path: Path) -> None:
    script = tmp_path / "secrets.sh"
    shutil.copy(DEPLOY / "compose/secrets.sh", script)

    def run() -> dict[str, bytes]:
        subprocess.run([script, "hub.example.org"], check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()}

    made = run()
    assert {Path(one["file"]).name for one in COMPOSE["secrets"].values()} <= set(made)
    assert all((tmp_path / "secrets" / name).stat().st_mode & 0o077 == 0 for name in made)
    assert run() == made
    assert len(made["secret_key"].strip()) >= 50  # less is a warning of `check --deploy`
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RMHUB_SECRET_KEYS_FILE", str(tmp_path / "secrets/secret_keys"))
        patch.delenv("RMHUB_SECRET_KEYS", raising=False)
        assert len(env.env_keys("RMHUB_SECRET_KEYS")) == 1


def test_prometheus_is_told_where_the_workers_are() -> None:
    compose, pod = HUB["worker1"]["environment"], PODS["worker"]["containers"][0]
    [in_pod] = [one["value"] for one in pod["env"] if one["name"] == "RMHUB_METRICS_LISTEN"]
    assert compose["RMHUB_METRICS_LISTEN"] == in_pod == "0.0.0.0:9464"
    assert compose.items() > HUB["web1"]["environment"].items()
    assert pod["ports"] == [{"name": "metrics", "containerPort": 9464}]
    assert "ports" not in HUB["worker1"], "it has no token"
    # Each worker of a machine has a port of its own.
    [unit] = [unit for unit in UNITS if role_of(unit.name) == "worker"]
    assert "RMHUB_METRICS_LISTEN=0.0.0.0:946%i" in unit.all("Service", "Environment")
    asked = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    [targets] = [one["static_configs"][0]["targets"] for one in asked if one["job_name"] == "rmhub-worker"]
    assert {target.rpartition(":")[2] for target in targets} == {"9461", "9462"}


# ---- Kubernetes ----


@pytest.mark.parametrize("role", PODS)
def test_pods_run_without_root_and_with_limits(role: str) -> None:
    pod = PODS[role]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"]["memory"] and container["resources"]["limits"]["memory"]
    assert pod["terminationGracePeriodSeconds"] >= 30
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert mounts["var"] == config_map()["RMHUB_VAR"] and mounts["tmp"] == "/tmp"
    folders = ("RMHUB_STORE_DIR", "RMHUB_LAKE_DIR", "RMHUB_ARCHIVE_DIR")
    assert all(config_map()[name].startswith(mounts["shared"]) for name in folders)
    if role == "migrate":
        return
    ready = container["readinessProbe"]
    if role == "web":
        assert ready["httpGet"]["path"] == "/readyz" and container["livenessProbe"]["httpGet"]["path"] == "/livez"
    else:
        assert ready["exec"]["command"] == ["python", "manage.py", "health", "--role", role]


def test_the_manifests_hold_together() -> None:
    kinds: dict[str, set[str]] = {}
    for one in MANIFESTS:
        kinds.setdefault(one["kind"], set()).add(one["metadata"]["name"])
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in MANIFESTS if one["kind"] == "Deployment"]
    for one in MANIFESTS:
        spec = one.get("spec", {})
        if one["kind"] in ("Deployment", "PodDisruptionBudget"):
            assert spec["selector"]["matchLabels"] in labels
        if one["kind"] == "Service":
            assert spec["selector"] in labels
        if one["kind"] == "Ingress":
            backend = spec["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"]
            assert backend in kinds["Service"] and spec["tls"][0]["hosts"] == [spec["rules"][0]["host"]]
    for pod in PODS.values():
        [container] = pod["containers"]
        used = {(kind, ref["name"]) for source in container["envFrom"] for kind, ref in source.items()}
        assert used == {("configMapRef", "rmhub"), ("secretRef", "rmhub")}
        assert "rmhub" in kinds["ConfigMap"] & kinds["Secret"] & kinds["PersistentVolumeClaim"]
    several = {
        one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "Deployment" and one["spec"]["replicas"] > 1
    }
    assert several == kinds["PodDisruptionBudget"] == {"rmhub-web", "rmhub-worker"}


# ---- systemd ----


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_hardened(unit: Unit) -> None:
    assert unit.one("Service", "User") == "rmhub"
    expected = {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "KillMode": "mixed",
        "StateDirectory": "rmhub",
    }
    assert {name: unit.one("Service", name) for name in expected} == expected
    once = unit.all("Service", "Type") == ["oneshot"]
    # A drop-in has the last word: what differs between units may not be in it.
    assert unit.all("Service", "Restart") == ["no" if once else "always"]
    if not once:
        assert int(unit.one("Service", "TimeoutStopSec")) >= 30
        assert unit.one("Install", "WantedBy") == "rmhub.target"
        assert "rmhub-migrate.service" in unit.one("Unit", "After")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    names = []
    for path in (DEPLOY / "systemd").rglob("*"):
        if path.suffix not in (".service", ".conf", ".target"):
            continue
        text = path.read_text().replace("/opt/rmhub/.venv/bin/python", "/bin/true")
        text = text.replace("file:/opt/rmhub/docs", "file:/tmp").replace("=/opt/rmhub", "=/tmp")
        target = tmp_path / path.relative_to(DEPLOY / "systemd")
        target = target.with_name(target.name.replace("@.", "@8000."))
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        names += [target.name] if path.suffix != ".conf" else []
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(names)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system"},
        capture_output=True,
        text=True,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


# ---- the proxy ----


def test_the_proxy_believes_nobody_and_repeats_nothing() -> None:
    text = (DEPLOY / "Caddyfile").read_text()
    header = HUB["web1"]["environment"]["RMHUB_FINGERPRINT_HEADER"]
    assert f"header_up {header} {{http.request.tls.client.fingerprint}}" in text
    assert environment_file()["RMHUB_FINGERPRINT_HEADER"] == header
    assert "health_uri /readyz" in text
    assert "lb_retry_match" not in text  # its default is GET only


@pytest.mark.skipif(shutil.which("caddy") is None, reason="no caddy here")
def test_caddy_takes_its_file(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", "-subj", "/CN=hub.example.org", "-keyout", "tls.key", "-out", "tls.crt"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    given = {"HUB_NAME": "hub.example.org", "HUB_SERVERS": "127.0.0.1:8001 127.0.0.1:8002", "HUB_TLS": str(tmp_path)}
    done = subprocess.run(
        ["caddy", "validate", "--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"],
        env={**os.environ, **given, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
