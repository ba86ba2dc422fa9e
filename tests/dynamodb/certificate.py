"""A self-signed certificate for 127.0.0.1 and localhost, created on demand; none is checked in."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """The paths of the certificate and its key."""

    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def available() -> bool:
    return shutil.which("openssl") is not None


def make(directory: Path) -> Certificate:
    """Create a certificate that is valid for a day."""
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    files = ["-addext", names, "-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(["openssl", *request.split(), *files], check=True, capture_output=True)
    return made
