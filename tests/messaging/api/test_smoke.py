from __future__ import annotations
import pytest
from tests.messaging.api.client import *

pytestmark = pytest.mark.django_db


def test_all(admin, partner):
    a = admin.submit(submission(partner))
    print(a)
    assert a.status == 202
    mid = a.json["id"]
    for p in [
        "/messages",
        f"/messages/{mid}",
        f"/messages/{mid}/payloads/1",
        f"/messages/{mid}/transmissions",
        f"/messages/{mid}/signals",
        f"/messages/{mid}/events",
        f"/messages/{mid}/wire",
        "/pairs",
        f"/pairs/{partner.outbound.code}",
        "/parties",
        "/endpoints",
        "/agreements",
        "/credentials",
        "/tokens",
        "/webhook-endpoints",
        "/incidents",
        "/rejections",
        "/audit-log",
        "/events",
        "/health",
        "/problems",
        "/openapi.json",
        "/docs",
        "/nope",
    ]:
        r = admin.get(p)
        print(p, r.status, r.content[:1500])
