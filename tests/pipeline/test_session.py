from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigurationError
from headrace.pipeline.session import check_java


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("no program at all", "cannot be run: Exec format error"),
        ("#!/nowhere/sh\n", "cannot be run: No such file or directory"),
        ("#!/bin/sh\nprintf '\\377\\376'; exit 1\n", "does not say its version"),
        (
            "#!/bin/sh\necho 'version \"11.0.1\"' >&2\n",
            "is 11; install a Java runtime, 17 or newer",
        ),
    ],
)
def test_a_java_that_is_none_is_told_in_a_sentence(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(script)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        check_java()
    assert str(java) in str(caught.value)
    assert said in str(caught.value)
