"""The words of the console, each with one meaning (docs/architecture.md); templates link to `#term-<slug>`."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from rmhub.language import gettext_lazy as _
from rmhub.language import pgettext_lazy


@dataclass(frozen=True, slots=True)
class Word:
    """One word. `also`: what else people call it."""

    slug: str
    term: str
    meaning: str
    also: str = ""

    @property
    def place(self) -> str:
        """What the glossary is sorted by, in any language."""
        return unicodedata.normalize("NFKD", str(self.term)).encode("ascii", "ignore").decode().casefold()


WORDS: tuple[Word, ...] = (
    Word(
        "acknowledgement",
        _("Acknowledgement"),
        _("The partner's word that a message is in its persistent storage. Not that its application has processed it."),
        _("ack, receipt"),
    ),
    Word(
        "agreement",
        _("Agreement"),
        _(
            "Who exchanges what with whom, over which transport, and how often and how long something is tried. Each "
            "change is a new version; a message keeps the version that it was sent under."
        ),
        _("TPA, trading partner agreement"),
    ),
    Word(
        "attempt", _("Attempt"), _("One transmission of a message's octets, with its outcome."), _("transmission, try")
    ),
    Word(
        "conversation",
        _("Conversation"),
        _("Messages that belong together in the eyes of the applications: an order, its confirmation, its invoice."),
    ),
    Word(
        "cpa",
        "CPA",
        _(
            "An agreement of ebXML 2.0 as a document in XML that both sides have: parties, addresses, certificates and "
            "terms. It can be imported, and an agreement written as one."
        ),
        _("collaboration protocol agreement"),
    ),
    Word("delivery", _("Delivery"), _("One inbound document on its way to one trigger.")),
    Word(
        "disabled",
        pgettext_lazy("pair", "Disabled"),
        _("A pair whose agreement is not in force. It was not stopped because of a failure; nothing is sent."),
    ),
    Word("document", _("Document"), _("The business content that applications care about. It travels in a message.")),
    Word(
        "duplicate",
        _("Duplicate"),
        _(
            "The same message again. It is acknowledged again, because the sender repeats what it heard no answer to, "
            "and not processed again."
        ),
    ),
    Word(
        "encryption",
        _("Encryption of documents"),
        _(
            "Each document goes out in a form that only its receiver can open, with the private key of the certificate "
            "that it is encrypted for. Applications and the message store have it in clear."
        ),
        _("S/MIME, digital envelope"),
    ),
    Word(
        "error-budget",
        _("Error budget"),
        _(
            "How many documents of a month may miss a target of the agreement: at 99 %, one of a hundred. When it is "
            "used up, the target is missed."
        ),
        _("SLA, service level, target"),
    ),
    Word(
        "held",
        _("Held for its turn"),
        _(
            "A message of a conversation with an order that came before the one in front of it. It is stored and "
            "acknowledged, and applications get it when that has come."
        ),
    ),
    Word(
        "in-doubt",
        _("In doubt"),
        _(
            "Nobody can tell whether it happened: the application may have processed the document, or the partner may "
            "have the message. A person decides by the evidence."
        ),
    ),
    Word(
        "incident",
        _("Incident"),
        _(
            "Something that a person must look at. The same problem at the same place is folded into one while it is "
            "open."
        ),
    ),
    Word("message", _("Message"), _("What is on the wire: an envelope with an id, around the document's payloads.")),
    Word(
        "pair",
        _("Pair"),
        _(
            "One direction between two messaging services. Documents on it keep their order, so that one which does "
            "not get through holds up all behind it."
        ),
    ),
    Word(
        "paused", _("Paused"), _("A person holds the pair. It takes submissions, and sends when somebody releases it.")
    ),
    Word(
        "queue",
        _("Queue"),
        _(
            "The documents of a pair that are not done: the one that is first in line, or those on the way, and what "
            "waits behind. Those of pairs that are suspended, paused or disabled are held up."
        ),
    ),
    Word(
        "proof",
        _("Proof of receipt"),
        _(
            "An acknowledgement that the partner has signed, with the digests of the message: the partner cannot deny "
            "that it was received unchanged. It can be verified again at any time."
        ),
        _("non-repudiation of receipt"),
    ),
    Word(
        "redeliver",
        _("Redeliver"),
        _("The same document again to an application here. Its history decides whether it is processed again."),
    ),
    Word(
        "resubmit",
        _("Resubmit"),
        _("A new message with a new id and the same content. The partner cannot know that it is a repetition."),
    ),
    Word(
        "resume",
        _("Resume"),
        _(
            "A suspended pair goes on: the same message again, with the same id, number and octets, so that the "
            "partner can tell a repetition; then what waits behind it."
        ),
    ),
    Word(
        "resync",
        _("Needs resync"),
        _(
            "The hub's database was restored, so that what this pair sent and received since the backup is not known. "
            "It goes on, but documents that come in may be repeats: the resolver is asked, or they are in doubt. A "
            "person compares both sides and clears the mark."
        ),
    ),
    Word(
        "sequence",
        _("Sequence number"),
        _("The place of a message on its pair. Numbers have no gaps: the receiver takes them one after the other."),
    ),
    Word(
        "silent",
        _("Silent"),
        _(
            "A pair from which a document was expected by now, and none has come. Nothing failed; that is what is "
            "wrong."
        ),
    ),
    Word(
        "skip",
        _("Skip"),
        _("A message is given up permanently, so that what waits behind it can go. The sequence restarts at 1."),
    ),
    Word(
        "suspended",
        pgettext_lazy("pair", "Suspended"),
        _("The hub has given up after all retries, and there is an incident. Nothing is sent until a person resumes."),
    ),
    Word(
        "transaction",
        _("Transaction"),
        _(
            "Work of several systems with one outcome: when all vote yes, everybody commits; else everybody rolls "
            "back. A participant that has voted yes waits for the outcome, and may not decide by itself."
        ),
        _("atomic transaction, WS-AtomicTransaction, two-phase commit"),
    ),
    Word("trigger", _("Trigger"), _("A subscription: which documents go to which application.")),
)
