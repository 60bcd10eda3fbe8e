from __future__ import annotations

from types import SimpleNamespace

import pytest

from partners import registry, services
from partners.addresses import normalise_fingerprint, normalise_uri
from partners.exceptions import InvalidInput
from partners.fields import duration
from partners.models import AgreementVersion, Endpoint, Party
from partners.transports import uri_fault
from partners.validation import (
    RULES,
    Level,
    give_up_seconds,
    gives_up_sentence,
    resend_words,
)
from tests.partners.factories import make_agreement, make_endpoint, make_party

DAY = 86_400


def codes(version: AgreementVersion) -> set[str]:
    return {problem.code for problem in services.version_validate(version=version)}


@pytest.mark.django_db
def test_the_defaults_have_no_problem():
    assert services.version_validate(version=make_agreement(activate=False)) == []


# Each row breaks one rule; the second column is the nearest setting that does not.
SETTINGS = [
    (
        "acknowledged_target_unmeasured",
        "acknowledged_within",
        {"semantics": "BestEffort", "retries": 0, "acknowledged_within": 900},
        {"acknowledged_within": 900},
    ),
    (
        "acknowledged_target_before_retry",
        "acknowledged_within",
        {"acknowledged_within": 60},
        {"acknowledged_within": 61},
    ),
    (
        "acknowledged_target_with_receipts",
        "acknowledged_within",
        {"profile": "stream", "final_receipt": True, "acknowledged_within": 900},
        {"profile": "stream", "final_receipt": False, "acknowledged_within": 900},
    ),
    (
        "processed_target_unmeasured",
        "processed_within",
        {"allowed": [("urn:a", "*", "send")], "processed_within": 900},
        {"allowed": [("urn:a", "*", "both")], "processed_within": 900},
    ),
    ("timeout_zero", "timeout", {"timeout": 0}, {"timeout": 20}),
    (
        "retry_interval_zero",
        "retry_interval",
        {"retries": 1, "retry_interval": 0},
        {"retries": 0, "retry_interval": 0},
    ),
    (
        "retries_without_acknowledgement",
        "retries",
        {"semantics": "BestEffort", "retries": 1},
        {"semantics": "BestEffort"},
    ),
    (
        "retries_without_acknowledgement",
        "retries",
        {"semantics": "AtMostOnce", "retries": 1},
        {"semantics": "AtMostOnce"},
    ),
    (
        "give_up_too_late",
        "retries",
        {"timeout": 60, "retries": 400, "retry_interval": DAY},
        {"timeout": DAY, "retries": 399, "retry_interval": DAY},
    ),
    ("memory_window_unused", "memory_window", {"memory_window": 7 * DAY}, {"memory_window": 400 * DAY}),
    (
        "transient_ceiling_short",
        "transient_ceiling",
        {"retry_interval": 300, "transient_ceiling": 299},
        {"retry_interval": 300, "transient_ceiling": 300},
    ),
    (
        "transient_ceiling_short",
        "transient_ceiling",
        {"retries": 0, "retry_interval": 300, "transient_ceiling": 299},
        {"semantics": "BestEffort", "retry_interval": 300, "transient_ceiling": 299},
    ),
    (
        "transport_recovery_long",
        "transport_retries",
        {"timeout": 60, "transport_retries": 7, "transport_retry_interval": 10},
        {"timeout": 60, "transport_retries": 6, "transport_retry_interval": 10},
    ),
    (
        "strict_sequence_unused",
        "strict_sequence",
        {"semantics": "BestEffort", "strict_sequence": True},
        {"strict_sequence": True},
    ),
    ("exchange_settings_unused", "exchange_mode", {"exchange_mode": "synchronous"}, {}),
    ("exchange_settings_unused", "exchange_mode", {"exchange_identity": "key"}, {}),
    *(
        (code, field, {"profile": "repeatable", **broken}, {"profile": "repeatable", **fine})
        for code, field, broken, fine in (
            ("semantics_not_reliable", "semantics", {"semantics": "AtMostOnce"}, {}),
            (
                "repeat_interval_above_longest",
                "repeat_interval",
                {"repeat_interval": 61, "repeat_interval_max": 60},
                {"repeat_interval": 60, "repeat_interval_max": 60},
            ),
            ("partner_window_short", "partner_window", {"partner_window": 59}, {"partner_window": 60}),
            (
                "partner_window_long",
                "partner_window",
                {"partner_window": 400 * DAY + 1},
                {"partner_window": 400 * DAY},
            ),
            (
                "memory_window_costly",
                "memory_window",
                {"memory_window": 62 * DAY + 1},
                {"memory_window": 62 * DAY},
            ),
            ("memory_window_below_repeats", "memory_window", {"memory_window": 600}, {"memory_window": 601}),
            (
                "clock_skew_long",
                "clock_skew",
                {"memory_window": 3600, "clock_skew": 3600},
                {"memory_window": 3600, "clock_skew": 3599},
            ),
            ("identity_without_first_sent", "exchange_identity", {"exchange_identity": "key"}, {}),
            ("ebxml_switches_unused", "strict_sequence", {"strict_sequence": True}, {}),
            ("ebxml_switches_unused", "strict_sequence", {"detect_repeats": True}, {}),
            # What says nothing under this profile is not looked at.
            ("ebxml_switches_unused", "strict_sequence", {"detect_repeats": True, "timeout": 0}, {"timeout": 0}),
        )
    ),
    *(
        (code, field, {"profile": "stream", **broken}, {"profile": "stream", **fine})
        for code, field, broken, fine in (
            ("semantics_not_of_streams", "semantics", {"semantics": "AtMostOnce"}, {"semantics": "BestEffort"}),
            ("resends_none", "retries", {"retries": 0}, {"retries": 1}),
            (
                "resends_too_long",
                "retries",
                {"retries": 2, "resend_schedule": f"60,{200 * DAY}"},
                {"retries": 1, "resend_schedule": f"60,{200 * DAY}"},
            ),
            (
                "window_below_concurrency",
                "max_in_flight",
                {"max_in_flight": 15},
                {"max_in_flight": 16},
            ),
            ("order_ack_timeout_short", "order_ack_timeout", {"order_ack_timeout": 49}, {"order_ack_timeout": 50}),
            (
                "order_ack_delay_short",
                "max_order_ack_delay",
                {"order_ack_timeout": 500, "max_order_ack_delay": 499},
                {"order_ack_timeout": 500, "max_order_ack_delay": 500},
            ),
            (
                "order_ack_later_than_resend",
                "max_order_ack_delay",
                {"max_order_ack_delay": 29_500},
                {"max_order_ack_delay": 29_499},
            ),
            ("memory_window_unused", "memory_window", {"memory_window": 7 * DAY}, {"memory_window": 400 * DAY}),
            ("life_too_long", "time_to_live", {"time_to_live": 400 * DAY + 1}, {"time_to_live": 400 * DAY}),
            ("life_below_first_resend", "time_to_live", {"time_to_live": 30}, {"time_to_live": 31}),
            (
                "final_receipt_never",
                "final_receipt_within",
                {"final_receipt": True, "final_receipt_within": 0},
                {"final_receipt_within": 0},
            ),
            (
                "final_receipt_late",
                "final_receipt_within",
                {"final_receipt": True, "final_receipt_within": 400 * DAY + 1},
                {"final_receipt": True, "final_receipt_within": 400 * DAY},
            ),
            ("settings_of_others_unused", "exchange_mode", {"strict_sequence": True}, {}),
            # What says nothing under this profile is not looked at.
            (
                "settings_of_others_unused",
                "exchange_mode",
                {"exchange_mode": "synchronous", "timeout": 0},
                {"timeout": 0},
            ),
        )
    ),
    *(
        (code, field, {"profile": "wsat", **broken}, {"profile": "wsat", **fine})
        for code, field, broken, fine in (
            ("resend_above_longest", "repeat_interval", {"repeat_interval": 601}, {"repeat_interval": 600}),
            (
                "resend_too_rare",
                "repeat_interval_max",
                {"repeat_interval_max": DAY + 1},
                {"repeat_interval_max": DAY},
            ),
            (
                "other_servers_open",
                "other_servers",
                {"other_servers": "https://one.example http://two.example"},
                {"other_servers": "https://one.example https://two.example"},
            ),
            ("silence_at_once", "retries", {"retries": 1}, {"retries": 2}),
            ("services_unused", "services", {"allowed": (("urn:orders", "NewOrder", "send"),)}, {}),
            ("settings_of_documents_unused", "exchange_mode", {"final_receipt": True}, {}),
            ("settings_of_documents_unused", "exchange_mode", {"strict_sequence": True}, {}),
            # What says nothing under this profile is not looked at: semantics, windows, Timeout.
            (
                "silence_at_once",
                "retries",
                {"retries": 0, "semantics": "AtMostOnce", "timeout": 0, "memory_window": 0},
                {"semantics": "AtMostOnce", "timeout": 0, "memory_window": 0, "partner_window": 1},
            ),
            (
                "own_uri_not_of_transactions",
                "own_endpoint",
                {"own_uri": "https://hub.example/ebxml"},
                {"own_uri": "https://hub.example/below/ws-tx/"},
            ),
        )
    ),
]
WARNINGS = {
    "time_to_live_before_retry",
    "acknowledged_target_before_retry",
    "password_in_the_clear",
    "partner_endpoint_of_other_party",
    "transports_mixed",
    "mail_timeout_short",
    "life_below_first_resend",
    "settings_of_others_unused",
    "transport_recovery_long",
    "network_timeouts_long",
    "strict_sequence_unused",
    "exchange_settings_unused",
    "identity_without_first_sent",
    "ebxml_switches_unused",
    "memory_window_costly",
    "memory_window_unused",
    "other_servers_open",
    "silence_at_once",
    "services_unused",
    "settings_of_documents_unused",
    "signature_weak",
    "response_not_awaited",
    "own_signer_missing",
    "partner_signer_missing",
    "own_decrypter_missing",
    "partner_recipient_missing",
    "encryption_without_signatures",
}


@pytest.mark.django_db
@pytest.mark.parametrize(("code", "field", "broken", "fine"), SETTINGS)
def test_contradicting_settings_are_found(code, field, broken, fine):
    version = make_agreement(activate=False, **broken)
    (problem,) = services.version_validate(version=version)
    assert (problem.code, problem.field) == (code, field)
    assert problem.level == (Level.WARNING if code in WARNINGS else Level.ERROR)
    assert len(problem.sentence) > 40 and problem.sentence.endswith(".")
    if problem.level is Level.ERROR:
        with pytest.raises(InvalidInput) as caught:
            services.version_activate(version=version)
        assert caught.value.errors == {field: [problem.sentence]}
    else:
        assert services.version_activate(version=version).state == "active"
    assert services.version_validate(version=make_agreement(activate=False, **fine)) == []


@pytest.mark.django_db
def test_network_timeouts_far_above_the_timeout_are_a_warning():
    partner = make_party()
    slow = make_endpoint(partner, connect_timeout=301, read_timeout=300)
    version = make_agreement(partner_endpoint=slow, timeout=60, activate=False)
    assert codes(version) == {"network_timeouts_long"}
    services.endpoint_update(endpoint=slow, connect_timeout=300)
    assert codes(version) == set()


@pytest.mark.django_db
def test_streams_and_requests_go_over_http_only():
    mailbox = make_endpoint(make_party(), "mailto:edi@partner.example", transport="smtp")
    for profile in ("stream", "repeatable", "wsat"):
        version = make_agreement(partner_endpoint=mailbox, profile=profile, activate=False)
        assert codes(version) == {"transport_not_http"}
    version = make_agreement(partner_endpoint=mailbox, activate=False, timeout=300)
    assert codes(version) == {"transports_mixed", "mail_without_sender"}
    ours = "mailto:edi@own.example"
    services.endpoint_update(endpoint=version.own_endpoint, transport="smtp", uri=ours, error_uri=ours)
    assert codes(version) == set()


@pytest.mark.django_db
def test_a_file_server_is_known_by_its_host_key():
    own = make_endpoint(make_party(own=True), "sftp://files.own.example/in/", transport="sftp")
    folder = make_endpoint(make_party(), "sftp://files.partner.example/in/", transport="sftp")
    version = make_agreement(own_endpoint=own, partner_endpoint=folder, activate=False)
    assert codes(version) == {"host_key_missing"}
    Endpoint.objects.filter(pk=folder.pk).update(host_key="SHA256:" + "A" * 43)
    assert codes(version) == set()


@pytest.mark.django_db
def test_a_stream_begins_with_the_window_and_the_resends_of_its_specification():
    version = make_agreement(profile="stream")
    assert (version.max_in_flight, version.retries) == (64, 10)
    assert registry.current().version(version.id).resend_schedule == (
        30,
        30,
        30,
        300,
        300,
        300,
        1800,
        1800,
        1800,
        21600,
    )


@pytest.mark.django_db
def test_transactions_have_waits_of_their_own_and_need_neither_services_nor_identifiers():
    own, partner = make_party(own=True, identifiers=()), make_party(identifiers=())
    version = make_agreement(profile="wsat", own_party=own, partner=partner)
    assert services.version_validate(version=version) == []
    assert (version.retries, version.repeat_interval, version.repeat_interval_max) == (10, 5, 600)
    assert (version.coordination_version, version.soap_version, version.addressing_profile) == (
        "2006/06",
        "1.1",
        "seed",
    )


@pytest.mark.django_db
def test_transactions_do_not_go_through_a_router():
    router = make_endpoint(make_party("Router"), "https://router.example/ws-tx")
    version = make_agreement(profile="wsat", partner=make_party("Them"), partner_endpoint=router, activate=False)
    (problem,) = services.version_validate(version=version)
    assert (problem.code, problem.level) == ("transactions_through_router", "error")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "schedule", ["", ",", "30,", "30;30", "0", "30,0", "-1", "1.5", "٣", ",".join("1" * 21), "9" * 9]
)
def test_waits_that_cannot_be_read_are_refused_at_once(schedule):
    """Every process that reads agreements counts on them, so that a draft cannot hold them either."""
    with pytest.raises(InvalidInput) as caught:
        make_agreement(profile="stream", resend_schedule=schedule, activate=False)
    assert list(caught.value.errors) == ["resend_schedule"]
    version = make_agreement(profile="stream", resend_schedule=" 1 , 2,3 ", activate=False)
    assert version.resend_schedule == "1,2,3"
    AgreementVersion.objects.filter(pk=version.pk).update(resend_schedule=schedule)
    assert codes(version) == {"resend_schedule_unreadable"}


@pytest.mark.django_db
def test_requests_without_ids_can_be_agreed_for_what_we_only_receive():
    terms = {"profile": "repeatable", "semantics": "BestEffort", "retries": 0, "activate": False}
    assert codes(make_agreement(allowed=[("urn:orders", "*", "receive")], **terms)) == set()
    assert codes(make_agreement(allowed=[("urn:orders", "*", "both")], **terms)) == {"semantics_not_reliable"}


@pytest.mark.django_db
def test_ids_of_requests_are_remembered_for_a_week_unless_agreed_otherwise():
    assert make_agreement(profile="repeatable", activate=False).memory_window == 7 * DAY
    assert make_agreement(profile="repeatable", memory_window=DAY, activate=False).memory_window == DAY


@pytest.mark.django_db
def test_both_endpoints_the_same():
    own = make_endpoint(make_party(own=True))
    version = make_agreement(own_endpoint=own, partner=make_party(), partner_endpoint=own, activate=False)
    assert codes(version) == {"endpoints_same", "partner_endpoint_ours"}


@pytest.mark.django_db
def test_endpoints_of_the_wrong_party_name_the_right_one():
    own, partner, stranger = make_party("Us", own=True), make_party("Them"), make_endpoint(make_party("Stranger"))
    version = make_agreement(own_party=own, partner=partner, own_endpoint=stranger, activate=False)
    (problem,) = services.version_validate(version=version)
    assert problem.code == "own_endpoint_of_other_party"
    assert problem.sentence == "Our endpoint belongs to Stranger: choose one of Us."
    ours = make_endpoint(make_party("Our branch", own=True))
    version = make_agreement(own_party=own, partner=partner, partner_endpoint=ours, activate=False)
    (problem,) = services.version_validate(version=version)
    assert (problem.code, problem.level) == ("partner_endpoint_ours", "error")
    assert "belongs to Our branch, which is ours: choose one of Them" in problem.sentence


@pytest.mark.django_db
def test_an_endpoint_of_a_third_party_is_the_router_that_leads_to_the_partner():
    own, partner, router = make_party("Us", own=True), make_party("Them"), make_endpoint(make_party("Router"))
    version = make_agreement(own_party=own, partner=partner, partner_endpoint=router)
    (problem,) = services.version_validate(version=version)
    assert (problem.code, problem.level) == ("partner_endpoint_of_other_party", "warning")
    assert problem.sentence.startswith("Messages go through Router: its endpoint is the next hop to Them")


@pytest.mark.django_db
def test_one_uri_for_both_sides():
    version = make_agreement(own_uri="https://hub.example/ebxml", activate=False)
    Endpoint.objects.filter(pk=version.partner_endpoint_id).update(uri="HTTPS://Hub.example/ebxml")
    assert "uris_same" in codes(version)


@pytest.mark.django_db
def test_no_service():
    assert codes(make_agreement(allowed=(), activate=False)) == {"services_missing"}


@pytest.mark.django_db
def test_parties_without_identifiers():
    version = make_agreement(
        own_party=make_party(own=True, identifiers=()), partner=make_party(identifiers=()), activate=False
    )
    assert codes(version) == {"own_party_unidentified", "partner_unidentified"}


@pytest.mark.django_db
def test_an_own_party_that_is_not_ours():
    version = make_agreement(activate=False)
    Party.objects.filter(pk=version.agreement.own_party_id).update(is_own=False)
    assert codes(version) == {"own_party_not_ours"}


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["uri", "error_uri", "address", "error_address"])
def test_endpoint_uris_are_looked_at_again(field):
    version = make_agreement(activate=False)
    Endpoint.objects.filter(pk=version.partner_endpoint_id).update(**{field: "https://me:pw@msh.example/"})
    (problem,) = services.version_validate(version=version)
    assert (problem.code, problem.field, problem.level) == ("uri_userinfo", "partner_endpoint", Level.ERROR)
    assert "pw" not in problem.sentence


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("address", "told"),
    [("http://msh.example/in", True), ("https://msh.example/in", False), ("http://127.0.0.1:8080/in", False)],
)
def test_a_password_over_plain_http_is_a_warning(address, told):
    version = make_agreement(activate=False)
    Endpoint.objects.filter(pk=version.partner_endpoint_id).update(address=address)
    assert codes(version) == set(), "nothing is shown to them"
    services.credential_store_outbound(
        party=version.agreement.partner, kind="basic", username="hub", secret="hunter2 hunter2"
    )
    assert codes(version) == ({"password_in_the_clear"} if told else set())


@pytest.mark.django_db
def test_several_problems_come_at_once():
    version = make_agreement(activate=False, timeout=0, allowed=(), retry_interval=0)
    assert codes(version) == {"timeout_zero", "services_missing", "retry_interval_zero"}
    with pytest.raises(InvalidInput) as caught:
        services.version_activate(version=version)
    assert set(caught.value.errors) == {"timeout", "services", "retry_interval"}


def test_every_rule_has_its_own_code_and_a_sentence():
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert {rule.code for rule in RULES if rule.level is Level.WARNING} == WARNINGS


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("https://msh.partner.example/ebxml", None),
        ("http://127.0.0.1:8080", None),
        ("https://[::1]/x?y=1", None),
        ("", "uri_missing"),
        ("mailto:edi@partner.example", "uri_scheme"),
        ("ftp://partner.example/", "uri_scheme"),
        ("partner.example/ebxml", "uri_scheme"),
        ("https://user:secret@partner.example/", "uri_userinfo"),
        ("https://@partner.example/", "uri_userinfo"),
        ("https:///ebxml", "uri_host"),
        ("https://:443/", "uri_host"),
        ("https://[::1/", "uri_malformed"),
        ("https://partner.example:99999/", "uri_malformed"),
        ("https://partner.example:x/", "uri_malformed"),
        ("https://partner.example:0/", "uri_port"),
        ("https://partner.example/a b", "uri_characters"),
        ("https://partner.example/a\r\nHost: evil", "uri_characters"),
        ("https://pärtner.example/", "uri_characters"),
        ("https://partner.example/#part", "uri_fragment"),
    ],
)
def test_what_is_wrong_with_a_uri(uri, code):
    fault = uri_fault(uri, "http")
    assert (fault and fault[0]) == code
    assert "secret" not in str(fault)


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        (" \n HTTPS://Msh.Partner.Example:8443/EbXML/ \t", "https://msh.partner.example:8443/EbXML/"),
        ("http://a", "http://a"),
        ("http://A/", "http://a/"),
        ("http://A?Q", "http://a?Q"),
        ("http://User:PW@HOST/x", "http://User:PW@host/x"),
        ("MAILTO:Edi@Partner.example", "mailto:Edi@partner.example"),
        ("http://[::1", "http://[::1"),
        ("no scheme", "no scheme"),
        ("", ""),
    ],
)
def test_uris_are_compared_trimmed_with_scheme_and_host_in_lower_case(written, compared):
    assert normalise_uri(written) == compared


@pytest.mark.parametrize(
    "written",
    [
        "ab" * 32,
        "AB" * 32,
        ":".join(["AB"] * 32),
        " " + " ".join(["ab"] * 32) + "\n",
        "SHA256 Fingerprint=" + ":".join(["AB"] * 32),
        "sha256 Fingerprint=" + ":".join(["AB"] * 32),
        "sha256:" + "ab" * 32,
    ],
)
def test_a_fingerprint_is_read_as_tools_write_it(written):
    assert normalise_fingerprint(written) == "ab" * 32


@pytest.mark.parametrize("written", ["", "ab" * 20, "ab" * 33, "gh" * 32, "sha1:" + "ab" * 32, "٣" * 64])
def test_what_is_no_sha_256_fingerprint(written):
    assert normalise_fingerprint(written) is None


def terms(**fields):
    return SimpleNamespace(
        **{"profile": "ebxml", "semantics": "OnceAndOnlyOnce", "timeout": 60, "retries": 5, "retry_interval": 300}
        | {"partner_window": DAY, "repeat_interval": 20, "repeat_interval_max": 600}
        | fields
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            terms(timeout=0, retries=5, retry_interval=1500),
            "Gives up after 2 h 5 m (1 send + 5 retries), then suspends the pair.",
        ),
        (terms(), "Gives up after 26 m (1 send + 5 retries), then suspends the pair."),
        (terms(timeout=45, retries=0), "Gives up after 45 s (1 send, no retries), then suspends the pair."),
        (
            terms(timeout=DAY, retries=1, retry_interval=61),
            "Gives up after 1 d 1 m 1 s (1 send + 1 retry), then suspends the pair.",
        ),
        (
            terms(semantics="BestEffort", retries=0),
            "Sends once and waits for no acknowledgement, so it neither repeats a message nor suspends the pair.",
        ),
        (
            terms(profile="repeatable"),
            "Repeats for up to 1 d, every 20 s to 10 m, then the message is in doubt.",
        ),
        (
            terms(profile="stream", resend_schedule=(30, 30, 300, 1800), retries=5, time_to_live=0),
            "Sends all that is unacknowledged again after 30 s to 30 m; "
            "5 resends without progress (1 h 36 m) suspend the pair.",
        ),
        (
            terms(profile="stream", resend_schedule="30", retries=1, time_to_live=4 * DAY),
            "Sends all that is unacknowledged again after 30 s; 1 resend without progress (1 m) suspends the pair. "
            "A message expires after 4 d.",
        ),
        (
            terms(profile="wsat", repeat_interval=5, retries=10),
            "Sends what awaits an answer again after 5 s to 10 m, and never gives up by itself; "
            "10 resends without an answer open an incident.",
        ),
        (
            terms(profile="wsat", repeat_interval=60, repeat_interval_max=60, retries=1, semantics="BestEffort"),
            "Sends what awaits an answer again after 1 m, and never gives up by itself; "
            "1 resend without an answer opens an incident.",
        ),
        (
            terms(profile="repeatable", partner_window=7200, repeat_interval_max=20),
            "Repeats for up to 2 h, every 20 s, then the message is in doubt.",
        ),
    ],
)
def test_when_a_message_is_given_up_in_words(given, sentence):
    assert gives_up_sentence(given) == sentence


@pytest.mark.django_db
def test_a_version_and_its_terms_say_the_same():
    version = make_agreement(timeout=60, retries=2, retry_interval=120)
    assert give_up_seconds(version) == 300
    assert gives_up_sentence(version) == gives_up_sentence(registry.current().version(version.id))


@pytest.mark.django_db
def test_two_profiles_never_share_a_pair_of_uris():
    """A pair speaks one profile. The one that is in force, even if it is disabled for a while, keeps the other out."""
    first = make_agreement()
    ends = {"own_endpoint": first.own_endpoint, "partner_endpoint": first.partner_endpoint}
    both = {"own_party": first.agreement.own_party, "partner": first.agreement.partner}
    assert codes(make_agreement(**both, **ends, activate=False)) == set()
    other = make_agreement(**both, **ends, profile="repeatable", activate=False)
    assert codes(other) == {"pair_of_other_profile"}
    with pytest.raises(InvalidInput) as caught:
        services.version_activate(version=other)
    assert first.agreement.tpa_id in caught.value.errors["profile"][0]
    assert "an endpoint of its own" in caught.value.errors["profile"][0]
    services.agreement_disable(agreement=first.agreement)
    assert codes(other) == {"pair_of_other_profile"}
    services.version_edit(version=other, own_endpoint=make_endpoint(first.agreement.own_party))
    assert services.version_activate(version=other).state == "active"


def test_waits_in_words():
    assert resend_words("30,30,30,300,300,21600") == "3 × 30 s, 2 × 5 m, then every 6 h"
    assert resend_words((60, 30, 60)) == "1 m, 30 s, then every 1 m"
    assert resend_words("5,5") == "every 5 s"


def test_durations_are_exact():
    assert [duration(seconds) for seconds in (0, 59, 60, 3600, 3601, 400 * DAY)] == [
        "0 s",
        "59 s",
        "1 m",
        "1 h",
        "1 h 1 s",
        "400 d",
    ]
