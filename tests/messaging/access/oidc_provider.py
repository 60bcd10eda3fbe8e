"""A small OpenID provider on loopback: discovery, keys, and a token endpoint that checks PKCE and the client."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

CLIENT = ("hub", "client-secret")


@dataclass
class Provider:
    """`claims` go into the next token; `spoil` changes them last, to lie. `codes`: what was given out, once each."""

    issuer: str = ""
    key: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "one", "use": "sig"}, private=True))
    claims: dict[str, Any] = field(default_factory=dict)
    spoil: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def authorize(self, url: str) -> dict[str, str]:
        """What a browser would bring back from there, after the person has logged in."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return {"code": code, "state": asked["state"]}

    def id_token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": asked["client_id"],
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            **self.claims,
            **self.spoil,
        }
        return jwt.encode({"alg": "ES256", "kid": self.key.kid}, claims, self.key)

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        self.seen.append(path)
        if path == "/.well-known/openid-configuration":
            ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            return 200, {"issuer": self.issuer, **{name: f"{self.issuer}/{end}" for name, end in ends.items()}}
        if path == "/keys":
            return 200, dict(KeySet([self.key]).as_dict(private=False))
        if path != "/token":
            return 404, {}
        asked = self.codes.pop(form.get("code", ""), None)
        basic = "Basic " + base64.b64encode(":".join(CLIENT).encode()).decode()
        if asked is None or authorization != basic or form.get("redirect_uri") != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "code_verifier"}
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token(asked)}


@contextmanager
def serving() -> Iterator[Provider]:
    """A provider that answers until the block ends."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, form: dict[str, str]) -> None:
            status, said = provider.answer(self.path, form, self.headers.get("Authorization", ""))
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer({name: values[0] for name, values in parse_qs(body).items()})

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
