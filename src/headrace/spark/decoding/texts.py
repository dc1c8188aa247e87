"""Payloads that are text: one column, ``value``."""

from __future__ import annotations

from .decoded import Decoded, Misfit, shown

VALUE_COLUMN = "value"


class TextFormat:
    """Decodes UTF-8."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded:
        import pyarrow as pa

        misfits: dict[int, Misfit] = {}
        try:
            column = pa.array(payloads, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            for number, payload in enumerate(payloads):
                try:
                    texts.append(payload.decode())
                except UnicodeDecodeError:
                    texts.append(None)
                    text = payload.decode(errors="backslashreplace")
                    misfits[number] = Misfit(f"not UTF-8: {shown(payload)}", text)
            column = pa.array(texts, pa.string())
        return Decoded([column] if self._wanted else [], None, misfits)
