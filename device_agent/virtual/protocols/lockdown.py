"""lockdownd: values, pairing, sessions with TLS, and the start of services by name."""

import os
import ssl
import uuid
from typing import Any, Final

from pydantic import ValidationError

from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.record import PairedHost
from device_agent.virtual.link.ports import Port
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.lockdown_values import domain_values

_TYPE: Final = "com.apple.mobile.lockdown"
_SETTABLE: Final = frozenset({"DeviceName", "TimeZone", "TimeIntervalSince1970"})
# What lockdownd tells to a host that it does not know; the rest needs a session.
_DOMAINS_WITHOUT_SESSION: Final = frozenset({"", "com.apple.mobile.wireless_lockdown"})

Answer = dict[str, Any]


class Lockdown:
    """lockdownd of one device. The same answers are given on USB and inside a tunnel."""

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device

    async def serve(self, wire: Wire) -> None:
        """One connection, from USB: a session, and with it TLS, begins on request."""
        wire.continue_reading()
        try:
            await self._converse(wire, trusted=False)
        except ssl.SSLError:
            # The host does not accept our certificate, or gave up: it sees the end of the connection.
            return

    async def serve_trusted(self, wire: Wire) -> None:
        """One connection inside a tunnel: the tunnel itself was made in a session."""
        await self._converse(wire, trusted=True)

    async def _converse(self, wire: Wire, *, trusted: bool) -> None:
        session: str | None = "tunnel" if trusted else None
        while True:
            query = await wire.receive_plist()
            request = str(query.get("Request"))
            answer: Answer = {"Request": request}
            if request == "StartSession" and not trusted:
                session = await self._start_session(wire, query, answer)
                continue
            if request == "StopSession":
                session = None if not trusted else session
                answer["Result"] = "Success"
            elif request == "StartService":
                answer |= self._start_service(wire, query, session)
            else:
                answer |= self._answer(request, query, session)
            await wire.send_plist(answer)

    def _answer(self, request: str, query: Answer, session: str | None) -> Answer:
        match request:
            case "QueryType":
                return {"Type": _TYPE}
            case "GetValue":
                return self._get_value(query, session)
            case "SetValue":
                return self._set_value(query, session)
            case "Pair":
                return self._pair(query)
            case "ValidatePair":
                known = _host_id(query) in self._device.record.hosts
                return {} if known else {"Error": "InvalidHostID"}
            case "Unpair":
                self._device.forget_host(_host_id(query))
                return {}
            case "EnterRecovery":
                return {"Error": "NotSupportedByVirtualDevice"}
            case _:
                return {"Error": "InvalidRequest"}

    def _get_value(self, query: Answer, session: str | None) -> Answer:
        domain, key = str(query.get("Domain") or ""), query.get("Key")
        told: Answer = {name: query[name] for name in ("Domain", "Key") if query.get(name)}
        if session is None and domain not in _DOMAINS_WITHOUT_SESSION:
            return told | {"Error": "GetProhibited"}
        values = domain_values(self._device, domain)
        if key is None:
            return told | {"Value": values}
        return told | ({"Value": values[key]} if key in values else {"Error": "MissingValue"})

    def _set_value(self, query: Answer, session: str | None) -> Answer:
        key = str(query.get("Key"))
        if session is None:
            return {"Error": "SessionInactive"}
        if query.get("Domain") or key not in _SETTABLE:
            return {"Error": "SetProhibited"}
        if key == "DeviceName":
            self._device.record.device_name = str(query.get("Value"))
            self._device.save()
        return {}

    def _pair(self, query: Answer) -> Answer:
        record = self._device.record
        if record.is_locked:
            return {"Error": "PasswordProtected"}
        if record.trust == "deny":
            return {"Error": "UserDeniedPairing"}
        if record.trust == "prompt":
            return {"Error": "PairingDialogResponsePending"}
        given = query.get("PairRecord") or {}
        bag = os.urandom(32)
        try:
            host = PairedHost(
                device_certificate=bytes(given["DeviceCertificate"]).decode(),
                host_certificate=bytes(given["HostCertificate"]).decode(),
                root_certificate=bytes(given["RootCertificate"]).decode(),
                escrow_bag_hex=bag.hex(),
                system_buid=str(given.get("SystemBUID", "")),
            )
        except (KeyError, TypeError, ValueError, ValidationError):
            return {"Error": "InvalidPairRecord"}
        record.hosts[_host_id(query)] = host
        self._device.save()
        self._device.log.say_as("lockdownd", f"paired with host {_host_id(query)}")
        return {"EscrowBag": bag}

    async def _start_session(self, wire: Wire, query: Answer, answer: Answer) -> str | None:
        """The session's id after TLS, None when the device does not know the host."""
        host = self._device.record.hosts.get(str(query.get("HostID")))
        if host is None:
            await wire.send_plist(answer | {"Error": "InvalidHostID"})
            return None
        session = str(uuid.uuid4()).upper()
        wire.hold_reading()
        await wire.send_plist(answer | {"SessionID": session, "EnableSessionSSL": True})
        await wire.start_tls(self._device.tls_context(host))
        wire.host_id = str(query["HostID"])
        return session

    def _start_service(self, wire: Wire, query: Answer, session: str | None) -> Answer:
        name = str(query.get("Service"))
        told: Answer = {"Service": name}
        if session is None:
            return told | {"Error": "SessionInactive"}
        device = self._device
        service = device.services.get(name)
        if service is None or not service.in_lockdown or (service.needs_image and not device.has_image):
            return told | {"Error": "InvalidService"}
        if service.needs_unlock and device.record.is_locked and not self._has_bag(query, wire.host_id):
            return told | {"Error": "PasswordProtected"}
        # Inside a tunnel nothing is encrypted once more.
        secure = wire.host_id is not None
        port = Port(f"service:{name}", service.handler, host_id=wire.host_id, secure=secure)
        return told | {"Port": device.ports.listen_once(port), "EnableServiceSSL": secure}

    def _has_bag(self, query: Answer, host_id: str | None) -> bool:
        """An escrow bag opens a device that was unlocked since it started, as iTunes needs it."""
        host = self._device.record.hosts.get(host_id or "")
        bag = query.get("EscrowBag")
        return (
            host is not None
            and isinstance(bag, bytes)
            and bag.hex() == host.escrow_bag_hex
            and self._device.record.was_unlocked_since_boot
        )


def _host_id(query: Answer) -> str:
    return str((query.get("PairRecord") or {}).get("HostID", ""))
