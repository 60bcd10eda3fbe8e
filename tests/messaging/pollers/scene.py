"""A partner with whom we exchange files: our folder `in`, theirs `out`, both on the server of the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from messaging.choices import Direction
from messaging.entrance.refusals import Arrival
from messaging.models import PollerState
from messaging.pollers.services import collecting_files, pollers
from messaging.pollers.services.collecting import LOOK_SECONDS, Found, Look
from messaging.protocol.codecs import entity_file
from messaging.transports import Parcel, Receipt, send
from messaging.transports.base import Login
from partners import services
from partners.models import Poller
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.transports.sftp_server import PASSWORD, USER, SftpServer
from tests.partners.factories import make_agreement, make_endpoint, make_outbound_credential, make_party


@dataclass(slots=True)
class Scene:
    """Both sides. `partner` builds what it sends; `theirs` and `ours` are the folders that each reads."""

    server: SftpServer
    partner: PartnerSide
    poller: Poller

    @property
    def theirs(self) -> Path:
        return self.server.folder("out")

    @property
    def ours(self) -> Path:
        return self.server.folder("in")

    def leaves(self, arrival: Arrival, name: str = "", *, age: int = 0) -> Path:
        """Puts it into our folder as a partner's software does, `age` seconds ago."""
        content = entity_file.pack(arrival.content_type, arrival.body)
        return self.leaves_bytes(name or entity_file.file_name("message", content), content, age=age)

    def leaves_bytes(self, name: str, content: bytes, *, age: int = 0) -> Path:
        file = self.ours / name
        file.write_bytes(content)
        age_of(file, age)
        return file

    def sends(self, arrival: Arrival, name: str = "message") -> Receipt:
        """The partner's own hub uploads it."""
        return send("sftp", self.parcel(arrival, name))

    def parcel(self, arrival: Arrival, name: str = "message", folder: str = "in") -> Parcel:
        return Parcel(
            address=self.server.url(folder),
            content_type=arrival.content_type,
            body=arrival.body,
            connect_timeout=5,
            read_timeout=5,
            host_key=self.server.host_key,
            login=Login(USER, PASSWORD),
            name=name,
        )

    def reads(self) -> list[Parcel]:
        """What lies in the partner's folder, taken away from there, oldest first; as parcels that `decoded` reads."""
        found = sorted(self.theirs.glob("*.ebxml"), key=lambda file: file.stat().st_mtime_ns)
        entities = [entity_file.unpack(file.read_bytes()) for file in found]
        for file in found:
            file.unlink()
        return [Parcel(self.server.url("out"), entity.content_type, entity.body) for entity in entities]

    def state(self) -> PollerState:
        return PollerState.objects.get(poller=self.poller)


def scene(server: SftpServer) -> Scene:
    """An agreement by files, in force, with the credentials of both ways and a poller."""
    own, partner = make_party(own=True), make_party()
    version = make_agreement(
        own_endpoint=make_endpoint(
            own, server.url("in"), transport="sftp", connect_timeout=5, read_timeout=5, host_key=server.host_key
        ),
        partner_endpoint=make_endpoint(
            partner, server.url("out"), transport="sftp", connect_timeout=5, read_timeout=5, host_key=server.host_key
        ),
    )
    make_outbound_credential(partner, username=USER, secret=PASSWORD)
    poller = services.poller_create(
        endpoint=version.own_endpoint,
        partner=partner,
        name=f"Folder of {partner.name}",
        kind="sftp",
        url=server.url("in"),
        username=USER,
        secret=PASSWORD,
        host_key=server.host_key,
    )
    return Scene(server, partner_side(version), poller)


def age_of(file: Path, seconds: int) -> None:
    import os

    at = time.time() - seconds
    os.utime(file, (at, at))


def look(change: Callable[[Look], Look] = lambda look: look) -> list[Found]:
    """What a worker does with the pollers whose time has come: claim, look, record."""
    jobs = pollers.claim_due(10)
    outcomes = []
    for job in jobs:
        assert job.look is not None
        outcomes.append(
            (job, collecting_files.collect(change(replace(job.look, until=time.monotonic() + LOOK_SECONDS))))
        )
    pollers.record(outcomes)
    return [found for _, found in outcomes]


__all__ = ["Direction", "Scene", "age_of", "look", "scene"]
