"""The other side of the large demo world: every partner's server in one process, with faults by URL.

/ok/<partner>/...       takes messages and acknowledges them to the hub
/500/ /503/             refuses them with that status
/timeout/               takes them and does not answer
/slow/                  answers after two seconds
/lost/                  closes the connection without an answer
/bad-ack/               takes them; what it sends back acknowledges another message
/poison/                refuses documents that say "poison", takes the others
/partner/<partner>/status, /echo      what it knows of a message; whom it takes the caller for, and what it reads
/hook                   a webhook receiver; /seen and /hooks show what came in
/control                takes {"undecided": what /status says of silent-... ids, "secrets": {partner: password}}
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import queue
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3

from messaging.protocol.codecs import ebxml
from messaging.protocol.errors import NotAMessage
from tests.worlds.ux.plan import OWN_NAME, PORTS, SECRET, login_of
from tests.worlds.ux.troubles import acknowledgement

log = logging.getLogger(__name__)

PATIENCE = 40.0  # seconds that /timeout/ keeps a caller waiting
SLOW = 2.0
MAX_BODY = 64 * 1024 * 1024


@dataclass(slots=True)
class Partners:
    """What all of them share. `hub`: the root of the hub's URL. `secrets`: of those that were given one."""

    hub: str
    partners: int
    undecided: str = ""
    secrets: dict[str, str] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    answers: queue.Queue[tuple[str, str, bytes]] = field(default_factory=queue.Queue)

    def acknowledge(self) -> None:
        """Sends what is due to the hub, one after the other, for ever."""
        pool = urllib3.PoolManager(retries=False, timeout=10)
        while True:
            slug, content_type, body = self.answers.get()
            secret = self.secrets.get(slug, SECRET)
            shown = base64.b64encode(f"{login_of(slug, self.partners)}:{secret}".encode()).decode()
            headers = {"Content-Type": content_type, "Authorization": f"Basic {shown}"}
            for _ in range(5):
                try:
                    answer = pool.request("POST", f"{self.hub}/ebxml/msh/{slug}", body=body, headers=headers)
                except urllib3.exceptions.HTTPError as error:
                    log.warning("acknowledgement not delivered: %s", error)
                    time.sleep(1)
                    continue
                if answer.status not in (429, 503):
                    break
                time.sleep(1)


class Handler(BaseHTTPRequestHandler):
    """One request to one of the partners."""

    protocol_version = "HTTP/1.1"
    shared: Partners

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self._say(413)
            return
        body = self.rfile.read(length)
        first, _, rest = self.path.lstrip("/").partition("/")
        if first == "hook":
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.shared.hooks.append({"headers": headers, "body": body.decode("utf-8", "replace")})
            self._say(204)
        elif first == "control":
            told = json.loads(body or b"{}")
            self.shared.undecided = str(told.get("undecided", self.shared.undecided))
            self.shared.secrets |= told.get("secrets", {})
            self._say(204)
        elif first == "partner" and not self.headers.get("Authorization"):
            self._say(401)
        elif first == "partner" and rest.endswith("/echo"):
            self._echo(body)
        else:
            self._message(first, rest.partition("/")[0], body)

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(parts.query))
        if parts.path == "/seen":
            name = asked.get("message_id", "")
            self._json([one for one in self.shared.seen if not name or one["message_id"] == name])
        elif parts.path == "/hooks":
            self._json(self.shared.hooks)
        elif parts.path.startswith("/partner/") and not self.headers.get("Authorization"):
            self._say(401)
        elif parts.path.endswith("/echo"):
            self._json({"partner": OWN_NAME, "at": _now()})
        elif parts.path.endswith("/status"):
            self._status(asked.get("message-id", ""))
        else:
            self._say(405)

    def _status(self, message_id: str) -> None:
        kind = message_id.partition("-")[0]
        answer = {"unknown": "not_recognized", "silent": self.shared.undecided}.get(kind, "processed")
        if answer:
            self._json({"message_id": message_id, "status": answer})
        else:
            self._say(503)

    def _echo(self, body: bytes) -> None:
        """What is read in a test message; nothing of it is kept."""
        try:
            envelope = ebxml.decode(self.headers.get("Content-Type", ""), body)
        except NotAMessage as error:
            self._json({"partner": OWN_NAME, "at": _now(), "profile": "", "problems": [str(error)]})
            return
        parts = [
            {"bytes": len(one.content), "sha256": hashlib.sha256(one.content).hexdigest()} for one in envelope.payloads
        ]
        told = {"message_id": envelope.message_id, "type": str(envelope.message_type)}
        self._json(
            {"partner": OWN_NAME, "at": _now(), "profile": "ebxml", "message": told, "payloads": parts, "problems": []}
        )

    def _message(self, behaviour: str, slug: str, body: bytes) -> None:
        content_type = self.headers.get("Content-Type", "")
        if behaviour == "timeout":
            time.sleep(PATIENCE)
        if behaviour == "slow":
            time.sleep(SLOW)
        if behaviour in ("lost", "timeout"):
            self.close_connection = True
            return
        if behaviour in ("500", "503") or (behaviour == "poison" and b"poison" in body):
            self._say(503 if behaviour == "503" else 500, b"cannot map line 3: unknown unit 'PAL'")
            return
        repeatable = self.headers.get("Repeatability-Request-ID") or self.headers.get("Repeatability-First-Sent")
        try:
            self._note(slug, content_type, body, repeatable or "")
            ours = None if repeatable else acknowledgement(content_type, body)
        except NotAMessage:
            ours = None
        if behaviour == "bad-ack":
            ours = None
        if repeatable:
            self._say(202, headers={"Repeatability-Result": "accepted"})
            return
        self._say(204)
        if ours is not None:
            self.shared.answers.put((slug, ours.content_type, ours.body))

    def _note(self, slug: str, content_type: str, body: bytes, request_id: str) -> None:
        found: dict[str, Any] = {"partner": slug, "at": time.time(), "message_id": request_id, "sequence": None}
        if not request_id:
            envelope = ebxml.decode(content_type, body)
            found |= {
                "message_id": envelope.message_id,
                "type": str(envelope.message_type),
                "sequence": envelope.routing[0].sequence_number if envelope.routing else None,
                "payloads": [hashlib.sha256(part.content).hexdigest() for part in envelope.payloads],
            }
        self.shared.seen.append({**found, "sha256": hashlib.sha256(body).hexdigest()})

    def _json(self, value: object) -> None:
        self._say(200, json.dumps(value).encode(), headers={"Content-Type": "application/json"})

    def _say(self, status: int, body: bytes = b"", *, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is of interest is under /seen."""


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def serve(port: int, hub: str, folder: Path) -> None:
    """Serves all ports of the world in `folder` (see `tests.worlds.ux.plan`), until it is stopped."""
    facts = json.loads((folder / "facts.json").read_text())
    shared = Partners(hub.rstrip("/"), facts["partners_count"])
    handler = type("PartnerHandler", (Handler,), {"shared": shared})
    servers = [_Server(("127.0.0.1", port + offset), handler) for offset in (0, *PORTS.values())]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "halden-new.pem", folder / "halden-new.key")
    secure = servers[1 + list(PORTS).index("tls")]
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=shared.acknowledge, name="acknowledge", daemon=True).start()
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()
