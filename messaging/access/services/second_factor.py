"""Time-based one-time passwords (RFC 6238) beside the password: set up, asked for at the log-in, and taken away.

A code counts for its 30 seconds and for those before and after, because clocks differ; none is taken twice (RFC 6238,
5.2). Recovery codes work once each, for whoever has lost the device.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import secrets as chance
from dataclasses import dataclass

import pyotp
import segno
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import SecondFactor
from partners import secrets
from rmhub import clock

STEP = 30  # seconds
RECOVERY_CODES = 10
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_CODE = re.compile(r"[0-9]{6}")


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What an app needs to make codes. `picture`: the URI as a QR code, an SVG in a data: URI."""

    secret: str
    uri: str
    picture: str

    @property
    def grouped(self) -> str:
        """The secret as it is typed."""
        return " ".join(self.secret[at : at + 4] for at in range(0, len(self.secret), 4))


def confirmed(user_id: int) -> SecondFactor | None:
    """The person's second factor, if they have one that is in use."""
    return SecondFactor.objects.filter(user=user_id, confirmed_at__isnull=False).first()


@sensitive_variables("secret", "uri")
def enrolment(user: User) -> Enrolment:
    """The secret that the person is about to confirm: made once, and the same until then. Raises WrongState."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        row = SecondFactor.objects.filter(user=user).first()
        if row is not None and row.confirmed_at is not None:
            raise WrongState(_("You have a second factor already: remove it first."), state="in_use")
        if row is None:
            secret = pyotp.random_base32()
            row = SecondFactor(user=user, secret_encrypted=secrets.encrypt(secret), created_at=clock.now())
            row.save(force_insert=True)
        secret = secrets.decrypt(row.secret_encrypted)
    uri = pyotp.TOTP(secret).provisioning_uri(name=user.get_username(), issuer_name=settings.RMHUB_NAME)
    return Enrolment(secret, uri, _picture(uri))


@sensitive_variables("code", "codes")
def second_factor_confirm(*, user: User, code: str, actor: Actor) -> list[str]:
    """Puts it to use with a first code. Returns the recovery codes, which are shown this once.

    Raises InvalidSubmission for a wrong code, NotFound when nothing was begun, WrongState when it is in use already.
    """
    with transaction.atomic():
        row = SecondFactor.objects.select_for_update().filter(user=user).first()
        if row is None:
            raise NotFound(_("Start again: there is no secret to confirm."))
        if row.confirmed_at is not None:
            raise WrongState(_("It is in use already."), state="in_use")
        _take(row, code)
        codes = _recovery(row)
        row.confirmed_at = clock.now()
        row.save()
        audit.record(actor, "user.set_second_factor", user)
    return codes


@sensitive_variables("code")
def second_factor_check(*, user: User, code: str) -> str:
    """Takes a code at the log-in: "code" or "recovery". Raises InvalidSubmission for one that is wrong or was used."""
    with transaction.atomic():
        row = SecondFactor.objects.select_for_update().filter(user=user, confirmed_at__isnull=False).first()
        if row is None:
            raise InvalidSubmission({"code": [_("There is no second factor.")]})
        used = _hashed(code)
        if used in row.recovery:
            row.recovery = [left for left in row.recovery if left != used]
            row.save(update_fields=["recovery"])
            return "recovery"
        _take(row, code)
        row.save(update_fields=["last_step"])
    return "code"


@sensitive_variables("codes")
def recovery_codes_renew(*, user: User, actor: Actor) -> list[str]:
    """New recovery codes; the old ones are worth nothing from now on. Raises NotFound."""
    with transaction.atomic():
        row = SecondFactor.objects.select_for_update().filter(user=user, confirmed_at__isnull=False).first()
        if row is None:
            raise NotFound(_("There is no second factor."))
        codes = _recovery(row)
        row.save(update_fields=["recovery"])
        audit.record(actor, "user.renew_recovery_codes", user)
    return codes


def second_factor_remove(*, user: User, actor: Actor, reason: str) -> None:
    """Takes it away: by its owner, or by an admin when the device is lost. Raises NotFound."""
    audit.require_reason(reason)
    with transaction.atomic():
        dropped, __ = SecondFactor.objects.filter(user=user).delete()
        if not dropped:
            raise NotFound(_("{name} has no second factor.").format(name=user.get_username()))
        audit.record(actor, "user.reset_second_factor", user, reason=reason)


def _take(row: SecondFactor, code: str) -> None:
    """Notes the code's step. Raises InvalidSubmission for a code of no step near, or of one that was taken."""
    typed = re.sub(r"\s", "", code)
    step = int(clock.now().timestamp()) // STEP
    made = pyotp.TOTP(secrets.decrypt(row.secret_encrypted))
    if _CODE.fullmatch(typed) and typed.isascii():
        for candidate in (step - 1, step, step + 1):
            if candidate > row.last_step and chance.compare_digest(made.generate_otp(candidate), typed):
                row.last_step = candidate
                return
    raise InvalidSubmission(
        {"code": [_("This code is not right, or was used before. Wait for the next one; is the device's clock right?")]}
    )


def _recovery(row: SecondFactor) -> list[str]:
    """Sixteen characters each (79 bits of chance), so a plain hash is enough."""
    texts = ["".join(chance.choice(_ALPHABET) for _ in range(16)) for _ in range(RECOVERY_CODES)]
    codes = ["-".join(code[at : at + 4] for at in range(0, 16, 4)) for code in texts]
    row.recovery = [_hashed(code) for code in codes]
    return codes


def _hashed(code: str) -> str:
    return hashlib.sha256(re.sub(r"[\s-]", "", code).lower().encode()).hexdigest()


def _picture(uri: str) -> str:
    made = io.BytesIO()
    segno.make(uri, error="m", micro=False).save(made, kind="svg", scale=4, border=2, light="white", dark="black")
    return "data:image/svg+xml;base64," + base64.b64encode(made.getvalue()).decode()
