"""What tests of webhooks need beside a server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def made_certificate(folder: Path) -> Path | None:
    """Make a certificate of 127.0.0.1 that nobody has signed; None: nothing here makes one."""
    if shutil.which("openssl") is None:
        return None
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key)]
    command += ["-out", str(certificate), "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both
