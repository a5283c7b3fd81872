"""Redaction: every form of a secret goes, lengths stay, one secret has one pseudonym, twice is once."""

import base64
import plistlib
import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from device_agent.floor.redaction import MAX_NESTING, MAX_SECRETS, Redactor
from device_agent.floor.secrets import kind_of_key
from tests.fakes.usbmuxd import UDID

NAMES = st.text(string.ascii_letters + string.digits + " -:'äé", min_size=6, max_size=30).map(str.strip)


@pytest.mark.parametrize(
    "text",
    [
        UDID,
        UDID.lower(),
        UDID.replace("-", ""),
        "0f" * 20,
        "6D1B2C3E-1111-4222-8333-ABCDEFABCDEF",
        "a4:83:e7:12:34:56",
        "192.168.178.23",
        "fe80::1c2b:3aff:fe4d:5e6f",
        "2001:db8:0:1:2:3:4:5",
        "somebody@mail.example",
        "356938035643809",
        "8949020000123456789",
    ],
)
def test_what_identifies_by_its_look_goes_wherever_it_stands(text: str) -> None:
    redactor = Redactor()
    shown = redactor.redact_text(f"x={text}, again {text}.")
    assert text not in shown
    assert len(shown) == len(f"x={text}, again {text}.")
    pseudonym = shown[2 : 2 + len(text)]
    assert shown == f"x={pseudonym}, again {pseudonym}."
    assert redactor.redact_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "iPhone17,1",
        "18.5 (22F76)",
        "12:34:56",
        "2026-11-29 12:00:00",
        "127.0.0.1:5000",
        "com.apple.mobile.lockdown",
        "00000000-0000-0000-0000-000000000000",
        "pid 12345 of 4294967295",
        "0x1f2e3d4c5b6a7988",
    ],
)
def test_what_identifies_nobody_stays(text: str) -> None:
    assert Redactor().redact_text(text) == text


@pytest.mark.parametrize("form", ["utf-8", "utf-16-be", "utf-16-le"])
def test_a_learned_name_goes_in_every_encoding_between_other_bytes(form: str) -> None:
    redactor = Redactor(["Änne's iPhone"])
    data = b"\x00\x01" + "Änne's iPhone".encode(form) + b"\xff\xfe"
    shown = redactor.redact_bytes(data)
    assert "Änne".encode(form) not in shown
    assert (len(shown), shown[:2], shown[-2:]) == (len(data), data[:2], data[-2:])


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("00008130001234567 8ABCDEF".replace(" ", "")),
        b"00008130001234567 8ABCDEF".replace(b" ", b""),
        base64.b64encode(UDID.encode()),
    ],
)
def test_an_identifier_goes_without_dashes_as_bytes_and_in_base64(data: bytes) -> None:
    redactor = Redactor([UDID])
    assert data not in redactor.redact_bytes(b"<" + data + b">")


def test_a_number_goes_in_decimal_hexadecimal_and_as_eight_bytes() -> None:
    ecid = 5124095576030191
    redactor = Redactor()
    redactor.redact_value({"UniqueChipID": ecid})
    for form in (
        str(ecid).encode(),
        f"{ecid:X}".encode(),
        ecid.to_bytes(8, "big"),
        ecid.to_bytes(8, "little"),
    ):
        assert form not in redactor.redact_bytes(b"[" + form + b"]")
    shown = redactor.redact_value({"other": ecid})["other"]
    assert shown == redactor.redact_value({"ECID": ecid})["ECID"] != ecid


def test_a_member_of_a_secret_name_goes_whole_with_all_that_is_in_it() -> None:
    value = {
        "CarrierBundleInfoArray": [{"MCC": "262", "n": 7, "ok": True}],
        "EscrowBag": b"\x01" * 32,
        "SSID": "ab",
    }
    shown = Redactor().redact_value(value)
    assert shown["CarrierBundleInfoArray"][0]["MCC"] != "262"
    assert shown["CarrierBundleInfoArray"][0]["ok"] is True
    assert shown["EscrowBag"] == bytes(32)
    assert shown["SSID"] != "ab"


@pytest.mark.parametrize("form", [plistlib.FMT_XML, plistlib.FMT_BINARY])
def test_a_property_list_that_is_packed_in_another_is_redacted_too(form: plistlib.PlistFormat) -> None:
    packed = plistlib.dumps({"HostID": "my-own-host-id", "kept": 1}, fmt=form)
    shown = Redactor().redact_value({"blob": packed})["blob"]
    assert plistlib.loads(shown)["kept"] == 1
    assert b"my-own-host-id" not in shown


def test_a_list_that_is_nested_too_deep_to_be_searched_goes_whole() -> None:
    secret: object = {"SerialNumber": "F2LXN123ABCD"}
    for _ in range(MAX_NESTING + 2):
        secret = [secret]
    packed = plistlib.dumps(secret)
    assert Redactor().redact_value({"Payload": packed}) == {"Payload": bytes(len(packed))}


def test_a_name_that_names_nobody_is_no_secret_elsewhere() -> None:
    redactor = Redactor()
    assert redactor.redact_value({"DeviceName": "iPhone"})["DeviceName"] != "iPhone"
    assert redactor.redact_text("iPhone17,1") == "iPhone17,1"


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("UniqueDeviceID", True),
        ("serialnumber", True),
        ("RootCertificate", True),
        ("DevicePublicKey", True),
        ("ApNonce", True),
        ("FirmwareChipSerialNo", True),
        ("ActivationStateAcknowledged", True),
        ("ActivationState", False),
        ("PasswordProtected", False),
        ("ProductType", False),
        ("DeviceID", False),
    ],
)
def test_names_of_members_tell_what_is_in_them(key: str, is_secret: bool) -> None:
    assert (kind_of_key(key) is not None) is is_secret


def test_a_key_in_text_form_keeps_its_frame_only() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMIIBabc+/=\nxyz\n-----END CERTIFICATE-----"
    assert (
        Redactor().redact_text(pem)
        == "-----BEGIN CERTIFICATE-----\nAAAAAAAAAA\nAAA\n-----END CERTIFICATE-----"
    )


def test_no_more_secrets_are_kept_than_there_is_room_for_and_the_rest_is_counted() -> None:
    redactor = Redactor()
    for number in range(MAX_SECRETS // 10):
        redactor.learn(f"secret-{number:08d}")
    assert len(redactor.learned) == MAX_SECRETS
    assert redactor.overflow > 0


def test_a_pseudonym_in_which_an_identifier_seems_to_stand_stays() -> None:
    redactor = Redactor(["'000000000000ggg"])
    shown = redactor.redact_text("|'000000000000ggg|")
    assert shown == "|'000000000000001|"
    assert redactor.redact_text(shown) == shown


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES.filter(lambda name: len(name) >= 6), min_size=1, max_size=4), st.binary(max_size=40))
def test_whatever_is_learned_is_gone_lengths_stay_and_a_second_pass_changes_nothing(
    names: list[str], noise: bytes
) -> None:
    # A secret of digits alone may look like somebody's pseudonym; then a second pass changes that.
    assume(all(sum(sign in "ghijklmnopqrstuvwxyz" for sign in name) >= 3 for name in names))
    redactor = Redactor(names)
    data = (b"|" + noise + b"|").join(
        form for name in names for form in (name.encode(), name.encode("utf-16-be"))
    )
    shown = redactor.redact_bytes(data)
    assert len(shown) == len(data)
    assert redactor.redact_bytes(shown) == shown
    for name in names:
        assert name.encode() not in shown


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=10)
        | st.binary(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["ECID", "SSID", "EscrowBag", "a", "Value"]), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_any_parsed_value_is_redacted_without_an_error(value: object) -> None:
    Redactor().redact_value(value)
