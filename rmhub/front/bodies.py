"""Fetches request bodies: at the pace that is asked for, in bounded memory, on disk above `SMALL`."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple


@dataclass(frozen=True, slots=True)
class Pace:
    """What is asked of whoever sends a body, or takes an answer. Seconds, and bytes a second."""

    grace: float = 10.0  # nothing need have come by then
    rate: float = 8192.0  # from then on, on average
    longest: float = 1800.0  # whatever the rate

    def until(self, began: float, size: int) -> float:
        """The moment by which more than `size` bytes must have moved, on the clock of `began`."""
        return began + min(self.longest, self.grace + size / self.rate)


class Full(Exception):
    """No room, and none came in time."""


class Budget:
    """Bytes that may be held at once. Whoever finds too few left waits in line; used on one event loop only."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, amount: int, seconds: float) -> int:
        """Waits until there is room and returns what was taken. Raises Full after `seconds`.

        Never more than the whole budget is taken: what is larger than that is worked on alone.
        """
        amount = min(amount, self.size)
        if not self._line and amount <= self.free:
            self.free -= amount
            return amount
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (amount, turn)
        self._line.append(place)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give(amount)
            elif place in self._line:
                self._line.remove(place)
                self._serve()  # the next may need less
            if isinstance(error, TimeoutError):
                raise Full from None
            raise
        return amount

    def give(self, amount: int) -> None:
        """Returns what was taken."""
        self.free += amount
        self._serve()

    def _serve(self) -> None:
        while self._line and self._line[0][0] <= self.free:
            amount, turn = self._line.popleft()
            if turn.cancelled():
                continue
            self.free -= amount
            turn.set_result(None)


SMALL = 64 * 1024  # bytes that are fetched before anybody looks at the headers, and kept in memory
_WRITE = 256 * 1024
_TRICKLE = 256  # chunks smaller than this are waited for together
_PAUSE = 0.05
_QUIET = 0.25
_DISCARD = 30.0

Receive = Callable[[], Awaitable[dict[str, Any]]]


class TooSlow(Exception):
    """The sender fell behind the pace."""


class TooLarge(Exception):
    """More came than may."""


class Gone(Exception):
    """The body broke off: the sender left, or sent chunks that are none. The server does not tell which."""


class Body(NamedTuple):
    """What came: a file at its beginning, and its size. `broken`: why that is not all."""

    file: BinaryIO
    size: int
    broken: TooSlow | Gone | None = None


class Wanted(BaseException):
    """Somebody reads a body that was not fetched yet. No error, so that nothing on the way takes it for one."""


class Later(BaseException):
    """No place for this request at present: it is run again in a moment, and waits without a thread until then."""


class Unfetched(io.RawIOBase):
    """Stands for a body that is still on the network: whoever reads it is run again once it has been fetched."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raise Wanted

    def read(self, size: int = -1, /) -> bytes:
        raise Wanted

    def readline(self, size: int | None = -1, /) -> bytes:
        raise Wanted


async def fetch_small(receive: Receive, size: int, pace: Pace) -> bytes:
    """A body of a declared length of at most `SMALL`. Raises TooSlow, Gone."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    body = b""
    while True:
        piece, more = await _next(receive, pace.until(began, len(body)))
        body = body + piece if body else piece
        if not more:
            return body
        if len(piece) < _TRICKLE:
            await asyncio.sleep(_PAUSE)


async def fetch(
    receive: Receive, limit: int, pace: Pace, folder: Path, disk: Executor, *, partial: bool = False
) -> Body:
    """A body of at most `limit` bytes. `partial`: what came of one that broke off is wanted too. Raises TooSlow and
    Gone otherwise, TooLarge, and OSError when there is no room on the disk.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    pieces: list[bytes] = []
    held = size = 0
    file: BinaryIO | None = None
    broken: TooSlow | Gone | None = None
    try:
        while True:
            try:
                piece, more = await _next(receive, pace.until(began, size))
            except (TooSlow, Gone) as error:
                if not partial:
                    raise
                broken = error
                break
            size += len(piece)
            if size > limit:
                raise TooLarge
            pieces.append(piece)
            held += len(piece)
            if held > (_WRITE if file is not None else SMALL):
                if file is None:
                    file = await loop.run_in_executor(disk, _open, folder)
                await loop.run_in_executor(disk, file.writelines, pieces)
                pieces, held = [], 0
            if not more:
                break
            if len(piece) < _TRICKLE:
                await asyncio.sleep(_PAUSE)
        if file is None:
            return Body(io.BytesIO(b"".join(pieces)), size, broken)
        await loop.run_in_executor(disk, _finish, file, pieces)
        return Body(file, size, broken)
    except BaseException:
        if file is not None:
            file.close()
        raise


async def discard(receive: Receive, most: int) -> None:
    """Takes what is being sent and keeps nothing, so that a sender who is in the middle of it hears the answer.

    The server reads no more once an answer has begun, and who writes into a closed connection never reads an answer.
    Ends with the body, when the sender pauses, after `most` bytes, or after `_DISCARD` seconds.
    """
    loop = asyncio.get_running_loop()
    until, size, more = loop.time() + _DISCARD, 0, True
    while more and size <= most:
        try:
            piece, more = await _next(receive, min(until, loop.time() + _QUIET))
        except TooSlow:
            return
        size += len(piece)


async def _next(receive: Receive, until: float) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout_at(until):
            event = await receive()
    except TimeoutError:
        raise TooSlow from None
    if event["type"] != "http.request":
        raise Gone
    return event.get("body", b""), event.get("more_body", False)


def _open(folder: Path) -> BinaryIO:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)  # has no name, so that nothing of it outlives the process


def _finish(file: BinaryIO, pieces: list[bytes]) -> None:
    file.writelines(pieces)
    file.seek(0)
