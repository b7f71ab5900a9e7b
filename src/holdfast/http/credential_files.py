"""Certificates and tokens in files: read at the start, and again when they change."""

from __future__ import annotations

import ssl
from pathlib import Path
from time import monotonic

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import InvalidInput

log = StructuredLog("holdfast.http")

_MAX_TOKEN_BYTES = 4_096
_MIN_TOKEN_BYTES = 16
_LOOK_AGAIN_SECONDS = 1.0
_Stamp = tuple[int, int, int]


class TlsFiles:
    """A TLS context for the certificate and the key in two files, PEM each."""

    def __init__(self, cert_file: str, key_file: str, setting: str) -> None:
        """Raise ``InvalidInput`` for this setting if they cannot be used."""
        self._paths = cert_file, key_file
        self._setting = setting
        self._stamps = self._look()
        self.context = self._load()

    def refresh(self) -> None:
        """Use the files as they are now, if they have changed; keep the last ones if they fail."""
        try:
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
                self.context = self._load()
                log.emit("http.certificate_loaded", file=self._paths[0])
        except InvalidInput as error:
            log.emit("http.certificate_refused", error=error)

    def _look(self) -> list[_Stamp]:
        return [_stamp(self._setting, path) for path in self._paths]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            # Without a password it would ask on the terminal for that of an encrypted key.
            context.load_cert_chain(*self._paths, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            problem = f"{self._paths[0]} and {self._paths[1]} are no certificate and its key"
            raise InvalidInput(self._setting, f"{problem} in PEM ({error})") from None
        return context


class TokenFile:
    """A token in a file, on one line."""

    def __init__(self, path: str, setting: str) -> None:
        """Raise ``InvalidInput`` for this setting if there is none."""
        self._path = path
        self._setting = setting
        self._looked_at = monotonic()
        self._stamp = _stamp(setting, path)
        self._token = self._read()

    def token(self) -> bytes:
        """Return the token as it is now or was a second ago; if the file is bad, the last one."""
        if monotonic() >= self._looked_at + _LOOK_AGAIN_SECONDS:
            self._looked_at = monotonic()
            try:
                stamp = _stamp(self._setting, self._path)
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._token = self._read()
            except InvalidInput as error:
                log.emit("http.token_refused", error=error)
        return self._token

    def _read(self) -> bytes:
        try:
            with Path(self._path).open("rb") as file:
                found = file.read(_MAX_TOKEN_BYTES + 1).strip()
        except OSError as error:
            raise InvalidInput(self._setting, f"{self._path}: {error.strerror}") from None
        if not _MIN_TOKEN_BYTES <= len(found) <= _MAX_TOKEN_BYTES or not found.isascii():
            problem = (
                f"{self._path} has no token: one line of {_MIN_TOKEN_BYTES} characters or more"
            )
            raise InvalidInput(self._setting, f"{problem}, such as `openssl rand -hex 32`")
        return found


def _stamp(field: str, path: str) -> _Stamp:
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(field, f"{path}: {problem}") from None
    return found.st_ino, found.st_mtime_ns, found.st_size
