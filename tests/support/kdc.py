"""A Kerberos realm of its own: MIT's KDC as a user's process, its principals and their key tabs.

Rule: everything lies in one folder and on one free port of the loopback address; no DNS, no file of the system.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from keyedwm.testing.broker import is_taken
from keyedwm.testing.local import free_ports
from tests.tools import wait_until

REALM = "KEYEDWM.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist")
_ADMIN_PATH = "/usr/sbin:/sbin"
_CLIENTS = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_SERVER = """[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {home}/principals
  key_stash_file = {home}/stash
  acl_file = {home}/acl
}}
[logging]
kdc = FILE:{home}/kdc.log
"""


def missing_programs() -> list[str]:
    """Return the programs of Kerberos that this machine does not have."""
    return [name for name in PROGRAMS if _program(name) is None]


@dataclass(frozen=True)
class Realm:
    """A running KDC; `home` holds its settings, its database and all key tabs."""

    home: Path

    @property
    def settings(self) -> Path:
        """The clients' `krb5.conf`, for KRB5_CONFIG and for Java."""
        return self.home / "krb5.conf"

    def add(self, name: str, *options: str) -> Path:
        """Add the principal `name` with a random key, and return its key tab; options: of `addprinc`."""
        keytab = self.home / f"{name.replace('/', '-')}.keytab"
        self._admin(" ".join(("addprinc", *options, "-randkey", name)))
        self._admin(f"ktadd -k {keytab} {name}")
        return keytab

    def change_key(self, name: str) -> None:
        """Give the principal another key: its key tabs are wrong from now on."""
        self._admin(f"change_password -randkey {name}")

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a process that uses this realm, and a ticket cache that does not exist yet."""
        cache = self.home / f"cache-{secrets.token_hex(4)}"
        return {"KRB5_CONFIG": str(self.settings), "KRB5CCNAME": f"FILE:{cache}"} | more

    def _admin(self, query: str) -> None:
        run_program("kadmin.local", ["-r", REALM, "-q", query], server_environment(self.home))


@contextmanager
def realm(home: Path) -> Iterator[Realm]:
    """Run a KDC in the empty folder `home`."""
    (port,) = free_ports(1)
    (home / "krb5.conf").write_text(_CLIENTS.format(realm=REALM, port=port))
    (home / "kdc.conf").write_text(_SERVER.format(realm=REALM, port=port, home=home))
    (home / "acl").touch()
    variables = server_environment(home)
    run_program("kdb5_util", ["create", "-s", "-r", REALM, "-P", secrets.token_hex(8)], variables)
    process = subprocess.Popen([str(_program("krb5kdc")), "-n"], env=os.environ | variables)
    try:
        wait_until(lambda: is_taken(port), "the KDC listens")
        yield Realm(home)
    finally:
        process.kill()
        process.wait()


def server_environment(home: Path) -> dict[str, str]:
    """Return the variables of the programs that read the database."""
    return {"KRB5_CONFIG": str(home / "krb5.conf"), "KRB5_KDC_PROFILE": str(home / "kdc.conf")}


def run_program(name: str, arguments: list[str], variables: Mapping[str, str]) -> str:
    """Run a program of Kerberos and return what it printed; raises CalledProcessError."""
    command = [str(_program(name)), *arguments]
    done = subprocess.run(command, env=os.environ | variables, check=True, capture_output=True, text=True)
    return done.stdout


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_ADMIN_PATH}")
