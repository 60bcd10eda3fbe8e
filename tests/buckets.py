"""A real server of S3 for the tests: a process on loopback, and an empty bucket in it for each test."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import boto3

from rmhub.env import Bucket

KEY, SECRET = "hub", "very-secret-key"


@contextmanager
def server() -> Iterator[str]:
    """Starts it, and yields its endpoint."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = ""
            while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", said)):
                line = process.stderr.readline()
                assert line, f"no server of S3: {said}"
                said += line
            yield found[1]
        finally:
            process.kill()


def client(endpoint: str) -> boto3.client:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )


def new_bucket(endpoint: str, prefix: str = "payloads/") -> Bucket:
    """An empty one."""
    bucket = Bucket(f"hub-{uuid4().hex[:20]}", prefix, endpoint, "us-east-1")
    client(endpoint).create_bucket(Bucket=bucket.name)
    return bucket
