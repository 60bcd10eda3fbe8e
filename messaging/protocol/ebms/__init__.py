"""Rules of ebXML Messaging 2.0 (OASIS, 2002) that need no socket, clock or database."""
