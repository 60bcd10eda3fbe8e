"""The checks, in the order in which they are made: what others depend on comes first."""

from __future__ import annotations

from messaging.overview.doctor import database, machine, network
from messaging.overview.doctor.check import DATABASE, Check

CHECKS = (
    Check("settings", machine.configuration),
    Check("trusted proxies", machine.proxies),
    Check(DATABASE, database.answers),
    Check("database encoding", database.encoding, asks_database=True),
    Check("database role", database.role, asks_database=True),
    Check("standby servers", database.standbys, asks_database=True),
    Check("migrations", database.migrations, asks_database=True),
    Check("durability", database.durability, asks_database=True),
    Check("write-ahead log", database.wal, asks_database=True),
    Check("connections", database.connections, asks_database=True),
    Check("clocks", database.clocks, asks_database=True),
    Check("broker", machine.wakes),
    Check("payload store", machine.store),
    Check("secret keys", machine.keys, asks_database=True),
    Check("workers", machine.workers, asks_database=True),
    Check("open files", machine.files),
    Check("time zones", machine.zones),
    Check("public name", network.public_name),
    Check("public certificate", network.public_certificate),
    Check("public address", network.public_answer),
    Check("mail servers", network.mail_servers),
    Check("mail entrance", machine.mail_entrance),
    Check("collector of traces", network.collector),
    Check("partners' names", network.partner_names, asks_database=True),
)
# Only for whoever asks for it: it connects to servers of others.
PARTNERS = Check("partners' servers", network.partner_servers, asks_database=True)
