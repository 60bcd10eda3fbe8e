from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from partners import checks, secrets
from partners.secrets import SecretUnreadable, decrypt, encrypt, reencrypt
from tests.partners.factories import make_outbound_credential, make_party

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def test_a_secret_comes_back_and_is_not_readable_at_rest():
    stored = encrypt("pässword")
    assert decrypt(stored) == "pässword"
    assert "pässword".encode() not in stored
    assert encrypt("pässword") != stored


def test_a_memoryview_is_read_like_bytes():
    assert decrypt(memoryview(encrypt("x"))) == "x"


def test_a_new_key_in_front_reads_what_the_old_one_wrote(settings):
    settings.RMHUB_SECRET_KEYS = [OLD]
    stored = encrypt("word")
    settings.RMHUB_SECRET_KEYS = [NEW, OLD]
    assert decrypt(stored) == "word"
    fresh, moved = encrypt("word"), reencrypt(stored)
    settings.RMHUB_SECRET_KEYS = [NEW]
    assert decrypt(fresh) == decrypt(moved) == "word"
    with pytest.raises(SecretUnreadable):
        decrypt(stored)
    with pytest.raises(SecretUnreadable):
        reencrypt(stored)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xff\xfe"])
def test_damaged_bytes_are_unreadable_and_the_error_does_not_repeat_them(data):
    with pytest.raises(SecretUnreadable) as caught:
        decrypt(data)
    assert "nonsense" not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize("keys", [[], ["too short"], [NEW, "nonsense"], ["ключ"]])
def test_missing_or_malformed_keys_are_named_by_position_only(settings, keys):
    settings.RMHUB_SECRET_KEYS = keys
    with pytest.raises(ImproperlyConfigured) as caught:
        encrypt("word")
    assert not any(key in str(caught.value) for key in keys)


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        ([], ["partners.E001"]),
        (None, ["partners.E001"]),
        (["short", NEW, "also short"], ["partners.E002", "partners.E002"]),
        ([NEW, NEW], ["partners.W001"]),
        ([NEW, OLD], []),
    ],
)
def test_the_system_check_says_what_is_wrong_with_the_keys(settings, keys, ids):
    settings.RMHUB_SECRET_KEYS = keys
    found = checks.secret_keys(None)
    assert [message.id for message in found] == ids
    assert all(message.hint for message in found)
    assert not any(key in message.msg for message in found for key in keys or ())


def test_the_system_check_wants_a_password_hasher(settings):
    assert checks.password_hashers(None) == []
    settings.PASSWORD_HASHERS = []
    assert [message.id for message in checks.password_hashers(None)] == ["partners.E003"]


@pytest.mark.django_db
def test_the_database_check_names_credentials_that_no_key_can_read(settings):
    settings.RMHUB_SECRET_KEYS = [OLD]
    credential = make_outbound_credential(make_party())
    assert checks.stored_secrets(None, databases=["default"]) == []
    settings.RMHUB_SECRET_KEYS = [NEW]
    (message,) = checks.stored_secrets(None, databases=["default"])
    assert message.id == "partners.W002" and credential.public_id in message.msg
    assert not message.is_serious()
    settings.RMHUB_SECRET_KEYS = []
    assert checks.stored_secrets(None, databases=["default"]) == []
    assert checks.stored_secrets(None, databases=None) == []


def test_positions_of_malformed_keys():
    assert secrets.malformed_keys([NEW, "x", OLD, ""]) == [2, 4]
