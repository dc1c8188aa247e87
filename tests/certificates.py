"""Certificates for tests, made by openssl: such as vouch for themselves, and those of an authority.

Where openssl is missing the test is skipped or failed, as for any missing peer.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import peers

__all__ = ["make_authority", "self_signed", "sign"]

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS: Final = ("-days", "2")


def self_signed(
    directory: Path, *, name: str = "127.0.0.1", alternatives: str = "IP:127.0.0.1"
) -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key.

    Args:
        name: its common name.
        alternatives: its alternative names as openssl writes them; "" for none.
    """
    more = ("-addext", f"subjectAltName={alternatives}") if alternatives else ()
    files = ("-keyout", "key.pem", "-out", "cert.pem")
    _openssl(directory, "req", "-x509", *_KEY, *files, *_DAYS, "-subj", f"/CN={name}", *more)
    return directory / "cert.pem", directory / "key.pem"


def make_authority(directory: Path) -> None:
    """An authority, as ``ca.pem`` and ``ca.key``."""
    files = ("-keyout", "ca.key", "-out", "ca.pem")
    use = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(directory, "req", "-x509", *_KEY, *files, *_DAYS, "-subj", "/CN=test CA", *use)


def sign(directory: Path, name: str, *, subject: str, alternatives: str) -> None:
    """A certificate of the directory's authority, as ``<name>.pem`` and ``<name>.key``."""
    request, extensions = f"{name}.csr", directory / "san.cnf"
    extensions.write_text(f"subjectAltName={alternatives}\n")
    _openssl(directory, "req", *_KEY, "-keyout", f"{name}.key", "-out", request, "-subj", subject)
    authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    files = ("-extfile", extensions.name, "-out", f"{name}.pem")
    _openssl(directory, "x509", "-req", "-in", request, *authority, *_DAYS, *files)


def _openssl(directory: Path, *arguments: str) -> None:
    if shutil.which("openssl") is None:
        peers.missing_peer("openssl", "install it")
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
