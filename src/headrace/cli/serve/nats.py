"""nats-server's configuration files as settings of Headrace.

Each key is applied, ignored with a warning that names its place if it only costs a convenience, or rejected
if ignoring it could grant access or hide a requested output.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from ...broker.core.auth.authentication import User
from ...broker.server.config.accounts import (
    read_accounts,
    read_asset_limits,
    read_permissions,
    read_secret,
    read_trust,
    read_users,
)
from ...broker.server.config.fields import Fields, read_websocket, refuse
from ...broker.server.config.syntax import ConfigMap, ConfigPlace, ConfigValue, parse_config
from ...errors import ConfigurationError
from .config import FileSettings

_HARMLESS: Final = frozenset({
    "write_deadline", "log_size_limit", "logfile_size_limit",
    "log_max_num", "logfile_max_num", "syslog", "remote_syslog", "client_advertise", "prof_port",
    "prof_block_rate", "trace_verbose", "trace_headers",
    "connect_error_reports", "reconnect_error_reports", "disable_sublist_cache",
    "lame_duck_grace_period", "max_closed_clients", "no_fast_producer_stall", "server_tags",
    "server_metadata", "http_base_path", "ping_first", "cluster", "gateway", "leafnodes",
    "leafnode", "leaf", "mqtt", "no_sys_acc",
    "no_system", "no_system_account", "no_sublist_cache", "write_timeout",
})  # fmt: skip
_HARMLESS_TLS: Final = frozenset({"connection_rate_limit"})
_HARMLESS_JETSTREAM: Final = frozenset({
    "unique_tag", "request_queue_limit", "max_outstanding_catchup", "max_buffered_msgs",
    "max_buffered_size", "info_queue_limit", "strict", "meta_compact", "meta_compact_size",
    "meta_compact_sync", "max_concurrent_io",
})  # fmt: skip


def read_nats_file(path: Path, text: str, environ: Mapping[str, str]) -> FileSettings:
    """The settings in ``text``, the content of ``path``. Raises ConfigurationError with the place."""
    document = parse_config(text, str(path), environ, _read_included)
    settings = FileSettings()
    _tell_repeated(document, settings)
    top = Fields(ConfigValue(document, ConfigPlace(str(path))), "file")
    _listener(top, settings, str(path))
    _limits(top, settings)
    websocket = top.take("websocket", "ws")
    if websocket is not None:
        settings.put("websocket", read_websocket(websocket))
    for name, read in (
        ("authorization", _authorization),
        ("accounts", _accounts),
        ("tls", _tls),
        ("jetstream", _jetstream),
    ):
        value = top.take(name)
        if value is not None:
            read(value, settings)
    _beside_tls(top, settings)
    settings.put("trust", read_trust(top, lambda name: _read_operator(Path(name), path)))
    if "jetstream" not in settings.values:
        settings.values["jetstream"] = False
        settings.assumed["jetstream"] = (
            f"{path}: jetstream: not in the file, so no streams are served; -js serves them"
        )
    _leftovers(top, settings, _HARMLESS, "")
    return settings


def _read_operator(name: Path, config: Path) -> str:
    """As nats-server: relative to the working directory, otherwise beside the configuration."""
    return (name if name.exists() else config.parent / name).read_text(encoding="utf-8")


def _read_included(name: str, including: str) -> tuple[str, str]:
    path = Path(including).parent / name
    return str(path), path.read_text(encoding="utf-8")


def _tell_repeated(document: ConfigMap, settings: FileSettings) -> None:
    for key, place in document.repeated:
        settings.warnings.append(f"{place}: {key}: given before in this file, the last one counts")
    for value in document.values():
        _tell_repeated_within(value, settings)


def _tell_repeated_within(value: ConfigValue, settings: FileSettings) -> None:
    if isinstance(value.content, ConfigMap):
        _tell_repeated(value.content, settings)
    elif isinstance(value.content, list):
        for inner in value.content:
            _tell_repeated_within(inner, settings)


def _listener(top: Fields, settings: FileSettings, file: str) -> None:
    listen = top.take("listen")
    if listen is not None:
        host, port = _host_and_port(listen, "listen")
        settings.put("addr", host)
        settings.put("port", port)
    settings.put("addr", top.text("host", "net"))
    settings.put("port", top.number("port"))
    monitor = top.take("http", "http_port", "monitor_port")
    if monitor is not None:
        host, port = _host_and_port(monitor, "http")
        settings.put("http_port", port)
        settings.put("http_host", host)
    if "addr" not in settings.values:
        settings.assumed["addr"] = (
            f"{file}: host: not in the file, so only this machine is served (nats-server would "
            'listen on every address: host: "0.0.0.0")'
        )
    settings.put("server_name", top.text("server_name"))
    settings.put("no_auth_user", top.text("no_auth_user"))
    settings.put("system_account", top.text("system_account", "system"))
    settings.put("debug", top.switch("debug"))
    settings.put("trace", top.switch("trace"))
    settings.put("max_traced_msg_len", top.number("max_traced_msg_len"))
    settings.put("store_dir", top.text("store_dir", "storedir"))
    settings.put("ports_file_dir", top.text("ports_file_dir"))
    settings.put("pid_file", top.text("pid_file", "pidfile"))
    settings.put("log_file", top.text("log_file", "logfile"))
    settings.put("logtime", top.switch("logtime", "log_time"))
    settings.put("logtime_utc", top.switch("logtime_utc", "log_time_utc"))


def _host_and_port(value: ConfigValue, name: str) -> tuple[str | None, int]:
    """``4222``, ``host:4222``, ``:4222`` or ``[::1]:4222``."""
    content = value.content
    if isinstance(content, int) and not isinstance(content, bool):
        return None, content
    host, colon, port = content.rpartition(":") if isinstance(content, str) else ("", "", "")
    if not colon or not port.removeprefix("-").isdecimal():
        refuse(value, name, 'not accepted; it must be a port or "host:port"')
    return host.removeprefix("[").removesuffix("]") or None, int(port)


def _limits(top: Fields, settings: FileSettings) -> None:
    settings.put("max_payload", top.amount("max_payload"))
    settings.put("no_header_support", top.switch("no_header_support"))
    settings.put("max_control_line", top.amount("max_control_line"))
    settings.put("max_connections", top.amount("max_connections", "max_conn"))
    settings.put("max_subscriptions", top.amount("max_subscriptions", "max_subs"))
    settings.put("max_sub_tokens", top.amount("max_sub_tokens", "max_subscription_tokens"))
    settings.put("max_pending", top.amount("max_pending", "max_pending_size"))
    settings.put("ping_interval", top.seconds("ping_interval"))
    settings.put("ping_max", top.amount("ping_max"))
    settings.put("lame_duck_duration", top.seconds("lame_duck_duration"))
    handover = top.take("pin_handover")  # ours alone: nats-server knows one way
    if handover is not None:
        if handover.content not in ("drain", "immediate"):
            refuse(handover, "pin_handover", "must be drain or immediate")
        settings.put("pin_handover", handover.content)


def _authorization(value: ConfigValue, settings: FileSettings) -> None:
    fields = Fields(value, "authorization")
    user = fields.text("user", "username")
    password = read_secret(fields, "password", "pass")
    token = read_secret(fields, "token")
    default = fields.take("default_permissions", "default_permission", "permissions")
    permissions = None if default is None else read_permissions(default)
    users = fields.take("users")
    settings.put("auth_timeout", fields.seconds("timeout"))
    _leftovers(fields, settings, frozenset(), "authorization.")
    if (user is None) != (password is None):
        refuse(value, "authorization", "user and password are needed together")
    if token is not None and permissions is not None:
        refuse(value, "authorization", "permissions with a token are not supported; name users")
    settings.put("auth", token)
    if users is not None:
        if user is not None:
            refuse(value, "authorization", "user and users are both given; accepted is one of them")
        settings.put("users", read_users(users, permissions))
    elif user is not None and password is not None:
        settings.put("users", [User(user, password, permissions)])


def _accounts(value: ConfigValue, settings: FileSettings) -> None:
    found = read_accounts(value)
    settings.put("accounts", found.accounts)
    taken = {user.name for user in settings.values.get("users", ())}
    for user in found.users:
        if user.name in taken:
            refuse(value, "accounts", f"the user {user.name!r} is in authorization, too")
    if found.users:
        settings.put("users", [*settings.values.get("users", ()), *found.users])


def _tls(value: ConfigValue, settings: FileSettings) -> None:
    fields = Fields(value, "tls")
    settings.put("tls", True)
    settings.put("tlscert", fields.text("cert_file"))
    settings.put("tlskey", fields.text("key_file"))
    settings.put("tlscacert", fields.text("ca_file"))
    settings.put("tlsverify", fields.switch("verify"))
    settings.put("tlsmap", fields.switch("verify_and_map", "map"))
    settings.put("tls_timeout", fields.seconds("timeout"))
    settings.put("tls_handshake_first", fields.switch("handshake_first", "first", "immediate"))
    _leftovers(fields, settings, _HARMLESS_TLS, "tls.")


def _beside_tls(top: Fields, settings: FileSettings) -> None:
    """``allow_non_tls`` and ``feature_flags``: what of them can be without an effect."""
    open_too = top.take("allow_non_tls")
    if open_too is not None:
        if not isinstance(open_too.content, bool):
            refuse(open_too, "allow_non_tls", "must be true or false")
        if open_too.content and "tls" in settings.values:
            refuse(
                open_too,
                "allow_non_tls",
                "not supported beside tls: one port serves clients with TLS, or without; run a second "
                "broker or a proxy for the others",
            )
    flags = top.take("feature_flags")
    if flags is not None:
        if not isinstance(flags.content, ConfigMap):
            refuse(flags, "feature_flags", "must be a map of names to true or false")
        settings.warn_of("feature_flags", flags)


def _jetstream(value: ConfigValue, settings: FileSettings) -> None:
    if not isinstance(value.content, ConfigMap):
        switch = {"enabled": True, "enable": True, "disabled": False, "disable": False}
        wanted = value.content
        if isinstance(wanted, str):
            wanted = switch.get(wanted.lower())
        if not isinstance(wanted, bool):
            refuse(value, "jetstream", "must be true, false, enabled, disabled or a map")
        settings.put("jetstream", wanted)
        return
    fields = Fields(value, "jetstream")
    enabled = fields.switch("enabled", "enable")
    disabled = fields.switch("disabled", "disable")
    settings.put("jetstream", enabled is not False and disabled is not True)
    settings.put("store_dir", fields.text("store_dir", "storedir", "store"))
    settings.put("domain", fields.text("domain"))
    for names in (("max_memory_store", "max_mem_store", "max_mem"), ("max_file_store", "max_file")):
        most = fields.number(*names)
        settings.put(names[0], None if most == -1 else most)  # -1: unlimited, as without it
    _sync(fields.take("sync_interval", "sync"), settings)
    limits = fields.take("limits")
    if limits is not None:
        found = read_asset_limits(limits)
        settings.put("jetstream_limits", found.limits)
        if found.ignored is not None:
            settings.warn_of("jetstream.limits.max_ha_assets", found.ignored)
    _leftovers(fields, settings, _HARMLESS_JETSTREAM, "jetstream.")


def _sync(value: ConfigValue | None, settings: FileSettings) -> None:
    """``always`` is supported; with an interval, nats-server acknowledges before the message is on disk."""
    if value is not None and value.content != "always":
        settings.warn_of(
            "jetstream.sync_interval",
            value,
            "ignored, messages are on disk before they are acknowledged; --sync chooses less",
        )


def _leftovers(
    fields: Fields, settings: FileSettings, harmless: frozenset[str], prefix: str
) -> None:
    for key, value in fields.rest():
        if key.lower() not in harmless:
            _refuse_unknown(prefix + key, value, fields.meant(key, harmless))
        settings.warn_of(prefix + key, value)


def _refuse_unknown(name: str, value: ConfigValue, meant: str) -> NoReturn:
    raise ConfigurationError(
        f"{value.place}: {name}: unknown or not supported; {meant + ' ' if meant else ''}"
        f"{'Or remove' if meant else 'remove'} it to go on without it "
        "(docs/configuration.md lists what is accepted)"
    )
