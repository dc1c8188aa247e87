"""What an account's token allows its streams: limits of the whole account, or by tier."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.consumers import create
from conformance.steps import api, connect, publish, stream
from conformance.table import Scenario, Settings, Table
from token_forge import Key, token

OPERATOR, SYSTEM, ACCOUNT, USER = Key("O"), Key("A"), Key("A"), Key("U")
ANY = {"conn": -1, "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1}
TIER = {"mem_storage": 1000, "disk_storage": 2000, "streams": 2, "consumer": 2}
R3 = {"mem_storage": 3000, "disk_storage": 3000, "streams": 3, "consumer": 3}
STRICT = {
    **TIER,
    "mem_max_stream_bytes": 500,
    "disk_max_stream_bytes": 600,
    "max_bytes_required": True,
    "max_ack_pending": 10,
}


def _settings(**limits: Any) -> Settings:
    account = token(OPERATOR, ACCOUNT, "account", limits={**ANY, **limits})
    system = token(OPERATOR, SYSTEM, "account", limits=ANY)
    return Settings(
        nats_conf=f"""
operator: {token(OPERATOR, OPERATOR, "operator")}
system_account: {SYSTEM.public}
resolver: MEMORY
resolver_preload {{ {SYSTEM.public}: {system}, {ACCOUNT.public}: {account} }}
"""
    )


LOGIN = token(ACCOUNT, USER, "user", bearer_token=True, subs=-1, data=-1, payload=-1)
TIERED = _settings(tiered_limits={"R1": TIER, "R3": R3})
STRICTLY = _settings(tiered_limits={"R1": STRICT})
ONLY_R3 = _settings(tiered_limits={"R3": R3})
BOTH = _settings(**TIER, tiered_limits={"R1": STRICT})
FLAT = _settings(**STRICT)
NO_DISK = _settings(tiered_limits={"R1": {**TIER, "disk_storage": 0}})


def allowed(title: str, settings: Settings, *steps: Step) -> Scenario:
    logins = [connect(on, jwt=LOGIN) for on in ("a", "set-up")]
    return Scenario(f"tiers: {title}", [*logins, *steps, api("STREAM.DELETE.S")], settings)


def made(title: str, settings: Settings, **config: Any) -> Scenario:
    """What creating a stream with this says, and what the account is told then."""
    body = {"name": "S", "subjects": ["a.>"], **config}
    return allowed(title, settings, api("STREAM.CREATE.S", body), api("INFO"))


CHECKS: Table = [
    case
    for name, settings in (
        ("tiered", TIERED),
        ("strict", STRICTLY),
        ("R3 alone", ONLY_R3),
        ("both", BOTH),
        ("flat", FLAT),
        ("no disk", NO_DISK),
    )
    for case in (
        allowed(f"{name}, nothing there", settings, api("INFO")),
        made(f"{name}, a stream of any size", settings),
        made(f"{name}, in memory", settings, storage="memory", max_bytes=400),
        made(f"{name}, reserving", settings, max_bytes=600),
        made(f"{name}, reserving more than a stream may", settings, max_bytes=601),
        made(f"{name}, reserving more than there is", settings, max_bytes=2001),
        made(f"{name}, more consumers than allowed", settings, max_bytes=100, max_consumers=5),
    )
]

USE: Table = [
    allowed(
        f"{name}, in use",
        settings,
        stream(subjects=["a.>"], max_bytes=600),
        publish("a.x", "x" * 100),
        create({"ack_policy": "explicit"}),
        create({"ack_policy": "explicit", "max_ack_pending": 11, "durable_name": "D"}),
        api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a.>"], "max_bytes": 2500}),
        publish("a.x", "x" * 2000),
        api("INFO"),
    )
    for name, settings in (("tiered", TIERED), ("strict", STRICTLY), ("flat", FLAT))
]

TABLE: Table = [*CHECKS, *USE]
