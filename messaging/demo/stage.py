"""Two real hubs on this machine, joined by a bad link: databases, processes, agreements, tokens, and an application.

Used by `manage.py up --demo`, `manage.py demo` and the acceptance tests.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from django import conf

from messaging.demo.application import SECRETS, TOKENS
from messaging.demo.databases import Log, broker_databases, own_databases, redis_database, servers
from rmhub import clock, embedded
from rmhub.hubs import BASE, Hub, free_ports, link_process, listens
from rmhub.supervisor import Process, Supervisor
from rmhub_client import Client

APPLICATION = "app"  # the name of the application's process
# What the demo of an installation keeps: the buyer's hub is the one that the installation's own commands are about.
DATABASES = ("rmhub", "rmhub_partner")
BROKER = (0, 1)
# Whatever the environment says of the folders of an installation, and of its bucket, is not about both hubs.
_BUCKET = "RMHUB_STORE_URL"
OWN_FOLDERS = dict.fromkeys(("RMHUB_STORE_DIR", "RMHUB_LAKE_DIR", "RMHUB_ARCHIVE_DIR", _BUCKET), "")
TITLES = ("Nordlys Retail", "Brick Lane Supplies")


@dataclass(frozen=True, slots=True)
class Link:
    """How bad the link between the hubs is: shares from 0 to 1, milliseconds a way, and the seed of its chances."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_ms: float = 0.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Parameters:
    """TPA parameters of the demo's agreements, in seconds. `ordered` matters to the repeatable profile only; `signed`
    to ebXML 2.0: messages and acknowledgements are, and documents are encrypted.
    """

    agreements: int = 4
    profile: str = "ebxml"
    more_profiles: tuple[str, ...] = ()  # agreements have them in turn
    ordered: bool = False
    timeout: int = 1
    retries: int = 100
    retry_interval: int = 1
    targets: bool = False  # of service levels
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Receiving:
    """The application that gets all documents of both hubs, and whether its resolver is asked.

    `takes_ms`: how long it is busy with a document. `kind`: "http" (it is called) or "pull" (it fetches them).
    `port`: 0 for any.
    """

    resolver: bool = True
    takes_ms: float = 0.0
    kind: str = "http"
    port: int = 0


@dataclass(slots=True)
class Stage:
    """Two hubs that are set up. `logins` of the buyer's console: name -> password.

    `effects` is the SQLite file of the receiving application, if there is one. `machines`: further ones of a hub, by
    its name: each with a web server and a worker, which share its database, its Valkey and its folder.
    """

    buyer: Hub
    seller: Hub
    link: Process
    secrets: dict[str, str]
    effects: Path
    application: Process | None = None
    pipeline: bool = False
    tokens: dict[str, str] = field(default_factory=dict)
    logins: dict[str, str] = field(default_factory=dict)
    machines: dict[str, list[Hub]] = field(default_factory=dict)

    def client(self, hub: Hub) -> Client:
        """An API client of one of the two."""
        others = [machine.url for machine in self.machines.get(hub.name, ())]
        # A busy machine takes minutes to start a server that was killed.
        return Client([hub.url, *others], self.tokens[hub.name], timeout=10, patience=600)

    def processes(self) -> list[Process]:
        """Everything that has to run, in order."""
        hubs = [*self.buyer.processes(prefix="a-", pipeline=self.pipeline), *self.seller.processes(prefix="b-")]
        for machine in (machine for machines in self.machines.values() for machine in machines):
            hubs += machine.processes(prefix=f"{machine.name}-", beat=False)
        return [self.link, *([self.application] if self.application else []), *hubs]


def installation_folders() -> dict[str, str]:
    """The folders of this installation and its bucket, by the names of their settings."""
    folders = {name: str(getattr(conf.settings, name)) for name in OWN_FOLDERS if name != _BUCKET}
    return {**folders, _BUCKET: os.environ.get(_BUCKET, "")}


def new_hub(
    name: str,
    *,
    title: str,
    database_url: str,
    redis_url: str,
    var: Path,
    port: int,
    settings: Mapping[str, str],
    threads: int = 32,
) -> Hub:
    """A hub of the demo on this machine, with a folder of its own."""
    hub = Hub(
        name=name,
        title=title,
        database_url=database_url,
        redis_url=redis_url,
        var=var,
        port=port,
        threads=threads,
        settings={"RMHUB_WEBHOOK_ALLOW_PRIVATE": "1", **OWN_FOLDERS, **settings},
    )
    hub.var.mkdir(parents=True, exist_ok=True)
    return hub


def make_databases(database_url: str, names: Sequence[str], hubs: Sequence[Hub], *, fresh: bool) -> None:
    """Databases with tables. `fresh`: there are none yet, so that the tables of one are as good as those of all."""
    if not fresh:
        for name in names:
            embedded.create_database(database_url, name)
        each(hubs, lambda hub: hub.manage("migrate", "--verbosity", "0"))
        return
    first, *others = names
    embedded.create_database(database_url, first)
    each(hubs[:1], lambda hub: hub.manage("migrate", "--verbosity", "0"))
    for name in others:
        embedded.create_database(database_url, name, like=first)


def set_up(
    *,
    database_url: str,
    redis_url: str,
    var: Path,
    link: Link,
    parameters: Parameters,
    ports: tuple[int, int],
    databases: tuple[str, str],
    redis_numbers: tuple[int, int],
    titles: tuple[str, str] = ("RM Hub", "Partner hub"),
    settings: dict[str, str] | None = None,
    receiving: Receiving | None = None,
    console: bool = True,
    folders: Mapping[str, str] | None = None,
    pipeline: bool = False,
    fresh: bool = False,
    machines: int = 1,
    log: Log = lambda line: None,
) -> Stage:
    """Makes databases, tables, parties, agreements, users and tokens of both hubs; may be run again on the same.

    `folders`: settings of the buyer's hub that name its folders, where those are not below its own; `pipeline`: whether
    it has the data pipeline's process; `fresh`: there are no such databases yet. Without `console` its files are not
    collected: nobody is going to look at it, and collecting takes seconds.
    Raises subprocess.CalledProcessError when a step fails (its output is on stderr).
    """
    hubs = [
        new_hub(
            name,
            title=title,
            database_url=embedded.database_url(database_url, database),
            redis_url=redis_database(redis_url, number),
            var=var / name,
            port=port,
            settings={**((folders or {}) if name == "a" else {}), **(settings or {})},
        )
        for name, port, database, number, title in zip(("a", "b"), ports, databases, redis_numbers, titles, strict=True)
    ]
    if folders is not None:
        _keys_of_the_installation(hubs[0].var)
    to_buyer, to_seller, any_port, *others = free_ports(3 + 2 * (machines - 1))
    further = {
        hub.name: [hub.machine(number, port) for number, port in enumerate(others[at::2], start=2)]
        for at, hub in enumerate(hubs)
    }
    application_port = receiving.port or any_port if receiving else 0
    known = _shared_secrets(var)
    signers = _signers(var) if parameters.signed else {}
    stage = Stage(
        buyer=hubs[0],
        seller=hubs[1],
        secrets=known,
        effects=var / "application.sqlite3",
        pipeline=pipeline,
        machines=further,
        link=link_process(
            {
                listen: [hub.port, *(machine.port for machine in further[hub.name])]
                for listen, hub in zip((to_buyer, to_seller), hubs, strict=True)
            },
            drop=link.drop,
            duplicate=link.duplicate,
            delay_ms=link.delay_ms,
            seed=link.seed,
        ),
    )
    log("creating tables and demo partners in both hubs")
    make_databases(database_url, databases, hubs, fresh=fresh)
    if console:
        each(hubs, lambda hub: hub.manage("collectstatic", "--noinput", "--verbosity", "0"))
    plans = {"a": ("buyer", to_seller, "b_to_a", "a_to_b"), "b": ("seller", to_buyer, "a_to_b", "b_to_a")}

    def seeding(hub: Hub) -> list[str]:
        side, port, *_ = plans[hub.name]
        return hub.manage(
            *("seed_demo", "--json", "--side", side, "--address", f"http://127.0.0.1:{port}"),
            "--secrets",
            *("--agreements", str(parameters.agreements), "--timeout", str(parameters.timeout)),
            *("--retries", str(parameters.retries), "--retry-interval", str(parameters.retry_interval)),
            *(f"--profile={one}" for one in (parameters.profile, *parameters.more_profiles)),
            *(["--ordered"] if parameters.ordered else []),
            *(["--targets"] if parameters.targets else []),
            *(["--signed"] if parameters.signed else []),
            *_application_options(receiving, application_port),
        )

    def shown(hub: Hub) -> str:
        lines = [known[direction] for direction in plans[hub.name][2:]]
        if parameters.signed:
            own, other = signers[hub.name], signers["b" if hub.name == "a" else "a"]
            lines += [_line(own), _line(other.partition("-----BEGIN PRIVATE")[0])]
        return "".join(f"{line}\n" for line in lines)

    opens: list[tuple[str, str]] = []
    for hub, output in zip(hubs, each(hubs, seeding, shown), strict=True):
        seeded = json.loads(output)
        stage.tokens[hub.name] = seeded["token"]
        opens.append((seeded["trigger_secret"], seeded["application_token"]))
        if hub is hubs[0]:
            stage.logins = _remembered_logins(hub.var, seeded["users"])
    if receiving is not None:
        trigger_secrets, tokens = zip(*opens, strict=True)
        pull = {hub.url: token for hub, token in zip(hubs, tokens, strict=True)} if receiving.kind == "pull" else {}
        stage.application = application_process(receiving, application_port, stage.effects, trigger_secrets, pull)
    return stage


def _application_options(receiving: Receiving | None, port: int) -> list[str]:
    if receiving is None:
        return []
    resolver = ["--resolver"] if receiving.resolver else []
    return ["--application", f"http://127.0.0.1:{port}", "--kind", receiving.kind, *resolver]


def application_process(
    receiving: Receiving, port: int, path: Path, trigger_secrets: Sequence[str], pull: Mapping[str, str] | None = None
) -> Process:
    """The receiving application on this port, with its effects in the file at `path`.

    `pull`: the hubs from whose queues it fetches, URL -> API token.
    """
    hubs = pull or {}
    return Process(
        name=APPLICATION,
        argv=[
            *(sys.executable, "-m", "messaging.demo.application", "--port", str(port)),
            *("--database", str(path), "--work-ms", str(receiving.takes_ms)),
            *(f"--pull={url}" for url in hubs),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(BASE),
            "PYTHONUNBUFFERED": "1",
            SECRETS: " ".join(trigger_secrets),
            TOKENS: " ".join(hubs.values()),
        },
        ready=listens(port),
        restart=True,
        cwd=BASE,
    )


@contextmanager
def running(
    *,
    link: Link,
    parameters: Parameters,
    log: Log = lambda line: None,
    settings: dict[str, str] | None = None,
    receiving: Receiving | None = None,
    keep: Path | None = None,
    folders: Mapping[str, str] | None = None,
    machines: int = 1,
) -> Iterator[tuple[Stage, Supervisor]]:
    """Both hubs, set up in databases of their own and running; everything is removed at the end.

    Their servers are those of DATABASE_URL and REDIS_URL, or embedded ones in a folder of their own. With `keep`, the
    folder of an installation, they are that installation's, and databases and files stay: see `DATABASES`, `set_up`.
    """
    with ExitStack() as stack:
        var, database_url, redis_url = stack.enter_context(servers(keep, log))
        databases = DATABASES if keep else stack.enter_context(own_databases(database_url, ("a", "b")))
        stage = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            link=link,
            parameters=parameters,
            ports=tuple(free_ports(2)),  # type: ignore[arg-type]
            databases=databases,  # type: ignore[arg-type]
            redis_numbers=stack.enter_context(broker_databases(redis_url)) if keep is None else BROKER,  # type: ignore[arg-type]
            titles=TITLES if keep else ("RM Hub", "Partner hub"),
            settings=settings,
            receiving=receiving,
            console=False,
            folders=folders,
            fresh=keep is None,
            machines=machines,
            log=log,
        )
        supervisor = Supervisor(
            stage.processes(), output=lambda name, line: log(f"{name}: {line}"), restarts_per_minute=120
        )
        log("starting both hubs and the link between them")
        supervisor.start()
        stack.callback(supervisor.stop)
        for hub in (stage.buyer, stage.seller):
            _await_worker(stage, hub)
        yield stage, supervisor


def _await_worker(stage: Stage, hub: Hub) -> None:
    """Returns when the hub has a worker, so that nobody's first messages tell how long one takes to start.

    Raises TimeoutError after two minutes.
    """
    until = time.monotonic() + 120
    with closing(stage.client(hub)) as client:
        while time.monotonic() < until:
            parts = client.get("/health")["parts"]
            if any(part["name"] == "workers" and part["state"] == "ok" for part in parts):
                return
            time.sleep(0.2)
    raise TimeoutError(f"{hub.name} has no worker")


def each(
    hubs: Sequence[Hub], command: Callable[[Hub], list[str]], told: Callable[[Hub], str] = lambda hub: ""
) -> list[str]:
    """Run a command in all hubs at the same time and return what they print.

    `told`: their standard input, for secrets: anybody on the machine can read a command line.
    """
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(command(hub), env=hub.environment(), stdin=pipe, stdout=pipe, text=True) for hub in hubs
    ]
    for hub, process in zip(hubs, running, strict=True):
        assert process.stdin is not None
        process.stdin.write(told(hub))
        process.stdin.close()
        process.stdin = None  # or communicate() would flush it
    outputs = [process.communicate()[0] for process in running]
    for process in running:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return outputs


def _keys_of_the_installation(var: Path) -> None:
    """Its own commands, `manage.py send` beside a running demo for one, read what the buyer's hub has encrypted."""
    path, own = var / "secrets.json", _read(Path(conf.settings.VAR_DIR) / "secrets.json")
    if own and not path.exists():
        _write(path, own)


def _shared_secrets(var: Path) -> dict[str, str]:
    """What the two hubs show each other; kept beside them, so that a second start fits the first."""
    path = var / "demo-secrets.json"
    return _read(path) or _write(path, {"a_to_b": secrets.token_urlsafe(24), "b_to_a": secrets.token_urlsafe(24)})


def _signers(var: Path) -> dict[str, str]:
    """What each hub signs and decrypts with: a certificate and its key (PEM); kept like the passwords."""
    path = var / "demo-signers.json"
    return _read(path) or _write(path, {name: _signer(name) for name in ("a", "b")})


def _signer(name: str) -> str:
    """A certificate for a year that is signed by itself, then its key."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Demo hub {name}")])
    now = clock.now()
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (made.public_bytes(Encoding.PEM) + private).decode()


def _line(pem: str) -> str:
    return b64encode(pem.encode()).decode()


def _remembered_logins(var: Path, made: dict[str, str]) -> dict[str, str]:
    """Passwords of the demo's users: shown at every start, so they are kept (0600), for this demo only."""
    path = var / "demo-logins.json"
    return _write(path, {**_read(path), **made})


def _read(path: Path) -> dict[str, str]:
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return known


def _write(path: Path, values: dict[str, str]) -> dict[str, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(values, file)
    return values
