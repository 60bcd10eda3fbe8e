"""The ASGI application that the HTTP server runs: fetches bodies, runs Django's WSGI application in threads.

A request without a body, or with a small one, is run once. One with a larger body, with a body of unknown length, or
whose sender asks first (`Expect: 100-continue`) is run before its body is there: whoever answers without reading it
(401, 403, 404, 413, 429 ...) has refused it unseen. Whoever reads it is left at that point (`bodies.Wanted`), the body
is fetched, and the request is run again from its start. So nothing that has an effect may come before the body is read.
A body that breaks off is thrown away, unless the view keeps what came of it (`environ.PARTIAL`): then the request is
run with that much, and its sender, who may be gone, hears that the body broke off.
"""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmhub import logs, memory, traces
from rmhub.front import draining
from rmhub.front.access_log import Counted, note
from rmhub.front.bodies import (
    SMALL,
    Body,
    Budget,
    Full,
    Gone,
    Later,
    Pace,
    Receive,
    TooLarge,
    TooSlow,
    Unfetched,
    Wanted,
    discard,
    fetch,
    fetch_small,
)
from rmhub.front.environ import IN_MEMORY, LIMIT, PARTIAL, PATIENCE, REQUEST_ID, TOO_LARGE, Peers, environ_of

log = logging.getLogger(__name__)

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
StartResponse = Callable[..., Any]
WSGI = Callable[[Environ, StartResponse], Iterable[bytes]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_WHOLE = 1024 * 1024  # an answer up to here leaves its thread before anybody takes it
_PIECE = 64 * 1024
_PAUSE = 0.1  # until a request that found no place is tried again; up to eight times that
_BUSY = 5  # seconds after which to come again
LIVE = "/livez"  # this process answers: nothing is looked at, and no thread is needed


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the front allows. Bytes and seconds; see docs/operations.md."""

    threads: int = 32
    pace: Pace = field(default_factory=Pace)
    memory: int = 64 * 1024 * 1024  # of bodies above `SMALL` that are worked on at once
    spool: int = 4 * 1024**3  # of bodies above `SMALL` that are on the disk, or on their way there
    wait: float = 20.0  # for room in memory, or for a place
    drain: float = 0.0  # from SIGTERM on, until no connection is taken any more
    discard: int = 128 * 1024 * 1024  # of a refused body, so that its sender hears the answer
    folder: Path = Path("/tmp")  # noqa: S108  (files without names)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the front itself refuses: `code` is one of the API's catalogue."""

    status: int
    code: str
    detail: str
    retry_after: int = 0


@dataclass(slots=True)
class _Answer:
    status: int
    headers: Headers
    body: bytes = b""
    file: FileWrapper | None = None
    sent: bool = False  # streamed from its thread already


class FileWrapper:
    """`wsgi.file_wrapper` (PEP 3333): an answer that is a file is read piece by piece and holds no thread."""

    def __init__(self, file: Any, block_size: int = _PIECE) -> None:
        self.file = file

    def __iter__(self) -> FileWrapper:
        return self

    def __next__(self) -> bytes:
        if piece := self.read():
            return piece
        raise StopIteration

    def read(self) -> bytes:
        return bytes(self.file.read(_PIECE))

    def close(self) -> None:
        if hasattr(self.file, "close"):
            self.file.close()


class Front:
    """See the module. `refuse`: a WSGI application that says a Refusal in the form of the road it came by."""

    def __init__(
        self,
        application: WSGI,
        refuse: Callable[[Refusal], WSGI],
        bounds: Bounds,
        peers: Peers,
        *,
        access_log: bool = False,
    ) -> None:
        self._application = application
        self._refuse = refuse
        self._bounds = bounds
        self._peers = peers
        self._access_log = access_log
        self._threads = ThreadPoolExecutor(bounds.threads, "web")
        self._disk = ThreadPoolExecutor(4, "spool")
        self._memory = Budget(bounds.memory)
        self._spool = Budget(bounds.spool)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] != "http":
            raise ValueError(scope["type"])  # PEP 3333 has nothing else; the server is told so (--no-ws)
        if scope["path"] == LIVE:
            kind = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
            await self._send(_Answer(200, kind, b"ok\n"), send)
            return
        environ = environ_of(scope, self._peers, FileWrapper)
        if not self._access_log:
            await self._serve(environ, receive, send)
            return
        answer, begun = Counted(send), time.monotonic()
        try:
            await self._serve(environ, receive, answer)
        finally:
            note(environ, answer, time.monotonic() - begun)

    async def _serve(self, environ: Environ, receive: Receive, send: Send) -> None:
        declared = environ.get("CONTENT_LENGTH", "")
        chunked = "HTTP_TRANSFER_ENCODING" in environ
        try:
            if not chunked and declared in ("", "0"):
                environ["wsgi.input"] = io.BytesIO()
                await self._run(environ, receive, send)
            elif not chunked and declared.isdigit() and int(declared) <= SMALL and "HTTP_EXPECT" not in environ:
                environ["wsgi.input"] = io.BytesIO(await fetch_small(receive, int(declared), self._bounds.pace))
                await self._run(environ, receive, send)
            else:
                await self._ask_first(environ, receive, send)
        except Gone:
            text = "The body ended early, or its chunks are not as HTTP has them."
            await self._say(Refusal(400, "malformed_body", text), environ, receive, send)
        except TooSlow:
            text = f"The body came too slowly: at least {self._bounds.pace.rate:g} bytes a second are asked for."
            await self._say(Refusal(408, "body_too_slow", text), environ, receive, send)
        except Full:
            text = "The hub works on as many large bodies as it has memory for. Send it again."
            await self._say(Refusal(503, "overloaded", text, _BUSY), environ, receive, send)
        except OSError as error:
            log.error("cannot keep a body", extra={"action": "spool_failed", "error": str(error)[:200]})
            text = "The hub has no room for the body at present. Send it again."
            await self._say(Refusal(503, "overloaded", text, _BUSY), environ, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """From the server's start to its end (ASGI, Lifespan Protocol); by the start its signal handlers are set."""
        await receive()
        draining.at_sigterm(asyncio.get_running_loop(), self._bounds.drain)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(traces.close)
        await send({"type": "lifespan.shutdown.complete"})

    async def _ask_first(self, environ: Environ, receive: Receive, send: Send) -> None:
        """Runs the request without its body; when it asks for the body, fetches it and runs the request again."""
        environ["wsgi.input"] = Unfetched()
        if await self._run(environ, receive, send):
            return
        limit = int(environ.get("CONTENT_LENGTH") or environ.get(LIMIT) or 0)
        async with self._taken(self._spool, limit, 0.0):
            try:
                pace, folder = self._bounds.pace, self._bounds.folder
                body = await fetch(receive, limit, pace, folder, self._disk, partial=PARTIAL in environ)
            except TooLarge:
                environ[TOO_LARGE] = True
                body = Body(io.BytesIO(), 0)
            try:
                answered = False
                while not answered:  # it may find out that it needs more of the body in memory
                    held = min(body.size, environ.get(IN_MEMORY, body.size))
                    async with self._taken(self._memory, held if body.size > SMALL else 0, self._bounds.wait):
                        body.file.seek(0)
                        environ["wsgi.input"] = body.file
                        if body.broken is not None:
                            await self._answer(environ, receive, send)
                            raise body.broken
                        answered = await self._run(environ, receive, send)
            finally:
                body.file.close()
                if body.size > _WHOLE:
                    self._disk.submit(memory.release)

    @asynccontextmanager
    async def _taken(self, budget: Budget, amount: int, seconds: float) -> AsyncIterator[None]:
        taken = await budget.take(amount, seconds)
        try:
            yield
        finally:
            budget.give(taken)

    async def _run(self, environ: Environ, receive: Receive, send: Send) -> bool:
        """Runs a request and sends its answer. False when it asked for a body that is not there."""
        answer = await self._answer(environ, receive, send)
        if answer is None:
            return False
        if isinstance(environ["wsgi.input"], Unfetched) and "HTTP_EXPECT" not in environ and not answer.sent:
            await discard(receive, self._bounds.discard)
        await self._send(answer, send)
        return True

    async def _answer(self, environ: Environ, receive: Receive, send: Send) -> _Answer | None:
        """Runs a request in a thread. None when it asked for a body that is not there."""
        loop = asyncio.get_running_loop()
        stream = _Stream(loop, receive, send, self._bounds.pace)
        environ[PATIENCE] = time.monotonic() + self._bounds.wait
        pause = _PAUSE
        while True:
            try:
                return await loop.run_in_executor(self._threads, self._call, self._application, environ, stream)
            except Later:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 8 * _PAUSE)

    async def _say(self, refusal: Refusal, environ: Environ, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        environ["wsgi.input"] = io.BytesIO()
        said = {"reason": refusal.code, "remote": environ["REMOTE_ADDR"], "request_id": environ[REQUEST_ID]}
        log.warning("refused", extra={"action": "refused", **said})
        stream = _Stream(loop, receive, send, self._bounds.pace)
        answer = await loop.run_in_executor(self._threads, self._call, self._refuse(refusal), environ, stream)
        if answer is not None:
            answer.headers.append(("Connection", "close"))
            await self._send(answer, send)

    def _call(self, application: WSGI, environ: Environ, stream: _Stream) -> _Answer | None:
        """Runs in a thread, from the application's start to the end of what it answers."""
        with logs.about(request_id=environ[REQUEST_ID]):
            return self._answered(application, environ, stream)

    def _answered(self, application: WSGI, environ: Environ, stream: _Stream) -> _Answer | None:
        started: list[tuple[int, Headers]] = []

        def start_response(status: str, headers: Headers, exc_info: Any = None) -> None:
            started[:] = [(int(status.split(" ", 1)[0]), headers)]

        try:
            result = application(environ, start_response)
        except Wanted:
            return None
        except Exception:
            log.exception("request failed", extra={"action": "request_failed", "path": environ["PATH_INFO"]})
            return _Answer(500, [("Content-Type", "text/plain")], b"The hub made a mistake; it is in its log.\n")
        status, headers = started[0]
        if isinstance(result, FileWrapper):
            return _Answer(status, headers, file=result)
        try:
            return stream.drain(_Answer(status, headers), result)
        finally:
            if hasattr(result, "close"):
                result.close()

    async def _send(self, answer: _Answer, send: Send) -> None:
        if answer.sent:
            return
        await send(_start(answer))
        if answer.file is None:
            await send({"type": "http.response.body", "body": answer.body})
            return
        loop = asyncio.get_running_loop()
        began, size = loop.time(), 0
        try:
            while piece := await loop.run_in_executor(self._disk, answer.file.read):
                async with asyncio.timeout_at(self._bounds.pace.until(began, size)):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                size += len(piece)
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            log.info("an answer was taken too slowly", extra={"action": "answer_cut", "bytes": size})
        finally:
            await loop.run_in_executor(self._disk, answer.file.close)


class _Stream:
    """Sends an answer that is made piece by piece, from the thread that makes it and no faster than it is taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive, send: Send, pace: Pace) -> None:
        self._loop, self._receive, self._send, self._pace = loop, receive, send, pace

    def drain(self, answer: _Answer, pieces: Iterable[bytes]) -> _Answer:
        """Returns the whole answer, or, when it is long, sends it as it is made."""
        held: list[bytes] = []
        size = 0
        source = iter(pieces)
        for piece in source:
            held.append(piece)
            size += len(piece)
            if size > _WHOLE and getattr(pieces, "streaming", False):
                break
        else:
            answer.body = held[0] if len(held) == 1 else b"".join(held)
            return answer
        answer.sent = True
        began, sent = self._loop.time(), 0
        gone = asyncio.run_coroutine_threadsafe(self._until_gone(), self._loop)
        try:
            self._wait(_start(answer), began, sent)
            self._wait(_piece(b"".join(held)), began, sent)
            sent += size
            for piece in _gathered(source):
                if gone.done():
                    return answer
                self._wait(_piece(piece), began, sent)
                sent += len(piece)
            self._wait({"type": "http.response.body", "body": b""}, began, sent)
        except TimeoutError:
            log.info("an answer was taken too slowly", extra={"action": "answer_cut", "bytes": sent})
        finally:
            gone.cancel()
        return answer

    def _wait(self, event: dict[str, Any], began: float, sent: int) -> None:
        async def send() -> None:
            async with asyncio.timeout_at(self._pace.until(began, sent)):
                await self._send(event)

        asyncio.run_coroutine_threadsafe(send(), self._loop).result()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _start(answer: _Answer) -> dict[str, Any]:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    if draining.has_begun():
        headers.append((b"connection", b"close"))  # the next request goes to another server
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


def _piece(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def _gathered(source: Iterable[bytes]) -> Iterable[bytes]:
    held: list[bytes] = []
    size = 0
    for piece in source:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
