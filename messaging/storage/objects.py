"""Payloads as objects of a bucket: S3, or what speaks its protocol.

Such a store has no locks. Instead a name is used once: bytes are put as `ab/<SHA-256>.<random>`, and the object grows
older from then on, whatever happens. Whoever keeps the same bytes takes an object that is younger than half of
`YOUNG_SECONDS`, or puts another one; whoever removes takes those that are older than all of it. So nobody removes what
somebody may still be about to name, however many keep and remove at once. Ages go by the clock of the store alone.
"""

from __future__ import annotations

import base64
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import IO, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from messaging.storage import base
from messaging.storage.base import PayloadMissing, Room, StoreUnavailable
from messaging.storage.large import PIECE, unnamed
from rmhub.env import Bucket

_PROBE = ".probe-"
_NUMBERS = {
    # Of S3, Ceph and MinIO, for "no room".
    "QuotaExceeded": errno.EDQUOT,
    "XMinioAdminBucketQuotaExceeded": errno.EDQUOT,
    "XMinioStorageFull": errno.ENOSPC,
    "AccessDenied": errno.EACCES,
    "403": errno.EACCES,
    "InvalidAccessKeyId": errno.EACCES,
    "SignatureDoesNotMatch": errno.EACCES,
    "NoSuchBucket": errno.ENOENT,
}
_GONE = ("NoSuchKey", "404")


@dataclass(frozen=True, slots=True)
class Objects:
    """A `base.Place`: objects below the prefix of a bucket."""

    bucket: Bucket
    access_key: str
    secret_key: str = field(repr=False)

    def put(self, digest: str, size: int, data: bytes | IO[bytes]) -> str:
        begin = f"{digest[:2]}/{digest}"
        with _asked(self.bucket):
            found = self._client().list_objects_v2(Bucket=self.bucket.name, Prefix=self._key(begin))
            now = _now(found)
            for one in found.get("Contents", ()):
                if one["Size"] == size and _age(one, now) < base.YOUNG_SECONDS / 2:
                    return self._name(one)
            name = f"{begin}.{secrets.token_hex(6)}"
            self._client().put_object(
                Bucket=self.bucket.name,
                Key=self._key(name),
                Body=data,
                ContentLength=size,
                # The store refuses what was changed on its way.
                ChecksumSHA256=base64.b64encode(bytes.fromhex(digest)).decode(),
            )
        return name

    def get(self, name: str) -> bytes:
        with _asked(self.bucket, name):
            answer = self._client().get_object(Bucket=self.bucket.name, Key=self._key(name))
            return bytes(answer["Body"].read())

    def open(self, name: str) -> IO[bytes]:
        """Fetched into a file without a name first: who reads it slowly holds no connection to the store."""
        file = unnamed()
        try:
            with _asked(self.bucket, name):
                answer = self._client().get_object(Bucket=self.bucket.name, Key=self._key(name))
                file.writelines(answer["Body"].iter_chunks(PIECE))
        except BaseException:
            file.close()
            raise
        return file

    def room(self) -> Room:
        """By a client that does not wait: health is asked for by balancers."""
        client = _client(self.bucket, self.access_key, self.secret_key, hasty=True)
        key = self._key(_PROBE + secrets.token_hex(6))
        try:
            with _asked(self.bucket):
                client.put_object(Bucket=self.bucket.name, Key=key, Body=bytes(4096))
                client.delete_object(Bucket=self.bucket.name, Key=key)
        except StoreUnavailable as error:
            return Room(str(error.strerror), error.full, None)
        return Room("", False, None)

    def remove(self, name: str, is_named: Callable[[], bool]) -> bool:
        where = {"Bucket": self.bucket.name, "Key": self._key(name)}
        try:
            with _asked(self.bucket, name):
                found = self._client().head_object(**where)
        except PayloadMissing:
            return True
        if _age(found, _now(found)) < base.YOUNG_SECONDS or is_named():
            return False
        with _asked(self.bucket):
            self._client().delete_object(**where)
        return True

    def names(self) -> Iterator[tuple[list[str], int]]:
        pages = self._client().get_paginator("list_objects_v2")
        with _asked(self.bucket):
            for page in pages.paginate(Bucket=self.bucket.name, Prefix=self._key("")):
                now, gone = _now(page), 0
                found: list[str] = []
                for one in page.get("Contents", ()):
                    name = self._name(one)
                    if name.startswith(_PROBE) and _age(one, now) > base.YOUNG_SECONDS:
                        self._client().delete_object(Bucket=self.bucket.name, Key=one["Key"])
                        gone += 1
                    elif name[2:3] == "/" and len(name) > base.DIGITS + 2:
                        found.append(name)
                yield found, gone

    def missing(self, names: list[str]) -> list[str]:
        def is_there(name: str) -> bool:
            with suppress(PayloadMissing), _asked(self.bucket, name):
                self._client().head_object(Bucket=self.bucket.name, Key=self._key(name))
                return True
            return False

        with _asked(self.bucket):  # an object of a bucket that is not there is not called missing
            self._client().head_bucket(Bucket=self.bucket.name)
        with ThreadPoolExecutor(16, "store") as threads:
            return [name for name, there in zip(names, threads.map(is_there, names), strict=True) if not there]

    def note(self, name: str) -> bytes | None:
        try:
            return self.get(name)
        except PayloadMissing:
            return None

    def write_note(self, name: str, data: bytes) -> None:
        with _asked(self.bucket):
            self._client().put_object(Bucket=self.bucket.name, Key=self._key(name), Body=data)

    def expiry(self) -> str:
        """The rule of the bucket that removes our objects after some time; "" when there is none, or none is seen.

        Raises StoreUnavailable.
        """
        try:
            answer = self._client().get_bucket_lifecycle_configuration(Bucket=self.bucket.name)
        except ClientError:  # there is none, or it is not for us to see
            return ""
        except BotoCoreError as error:
            raise _unavailable(self.bucket, errno.EIO, str(error)) from error
        for rule in answer.get("Rules", ()):
            within = rule.get("Prefix", rule.get("Filter", {}).get("Prefix", ""))
            ends = {"Days", "Date"} & set(rule.get("Expiration", ()))
            if rule["Status"] == "Enabled" and ends and self._key("ab/").startswith(within):
                return str(rule.get("ID") or within or "without a name")
        return ""

    def _client(self) -> Any:
        return _client(self.bucket, self.access_key, self.secret_key, hasty=False)

    def _key(self, name: str) -> str:
        return f"{self.bucket.prefix}{name}"

    def _name(self, one: dict[str, Any]) -> str:
        return str(one["Key"])[len(self.bucket.prefix) :]


@lru_cache(maxsize=8)
def _client(bucket: Bucket, access_key: str, secret_key: str, *, hasty: bool) -> Any:
    """A client may be used by all threads of a process, with connections that are kept. Without keys it looks for
    credentials as the SDK does (the role of the machine, the environment).

    All times are bounded: a thread of the web server or of a worker waits for the answer.
    """
    config = Config(
        region_name=bucket.region or None,
        connect_timeout=2,
        read_timeout=3 if hasty else 20,
        retries={"mode": "standard", "total_max_attempts": 1 if hasty else 3},
        max_pool_connections=64,
        # Most stores know buckets by path only; checksums in trailers are not known by all.
        s3={"addressing_style": "path" if bucket.endpoint else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session(
        aws_access_key_id=access_key or None,
        aws_secret_access_key=secret_key or None,
        region_name=bucket.region or "us-east-1",
    )
    return session.client("s3", endpoint_url=bucket.endpoint or None, config=config)


os.register_at_fork(after_in_child=_client.cache_clear)  # its connections are those of the parent


@contextmanager
def _asked(bucket: Bucket, name: str = "") -> Iterator[None]:
    """Says in our words what went wrong. `name`: of the payload that is asked for, when it may be missing."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if name and code in _GONE:
            raise PayloadMissing(f"payload object {name} is missing from {bucket.shown}") from error
        said = str(error.response.get("Error", {}).get("Message", "")) or code
        raise _unavailable(bucket, _NUMBERS.get(code, errno.EIO), f"{code}: {said}") from error
    except (BotoCoreError, OSError) as error:
        if isinstance(error, StoreUnavailable):
            raise
        number = errno.EACCES if "Credentials" in type(error).__name__ else errno.EIO
        raise _unavailable(bucket, number, str(error)) from error


def _unavailable(bucket: Bucket, number: int, said: str) -> StoreUnavailable:
    return StoreUnavailable(number, " ".join(said.split())[:300], bucket.shown)


def _now(answer: dict[str, Any]) -> datetime:
    """What the store's clock says, by which it stamps objects; to the second."""
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if said is None:
        return datetime.fromtimestamp(time.time()).astimezone()
    return parsedate_to_datetime(said)


def _age(one: dict[str, Any], now: datetime) -> float:
    return float((now - one["LastModified"]).total_seconds())
