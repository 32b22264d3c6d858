"""Certificates of tests: an authority of their own, and what it has signed for 127.0.0.1. Made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate of an authority, and its key."""

    certificate: Path
    key: Path


def made_authority(folder: Path, name: str = "authority") -> Authority:
    """Make an authority."""
    made = Authority(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl("req", "-x509", *_KEY, "-keyout", made.key, "-out", made.certificate, "-subj", f"/CN={name}")
    return made


def signed_certificate(folder: Path, authority: Authority) -> Path:
    """Return a file with a key and a certificate of 127.0.0.1 that an authority has signed."""
    key, asked, signed, more = (folder / f"server.{end}" for end in ("key", "asked", "signed", "more"))
    more.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl("req", *_KEY, "-keyout", key, "-out", asked, "-subj", "/CN=127.0.0.1")
    by = ("-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial", "-days", "2")
    _openssl("x509", "-req", "-in", asked, *by, "-extfile", more, "-out", signed)
    both = folder / "server.pem"
    both.write_text(key.read_text() + signed.read_text())
    return both


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
