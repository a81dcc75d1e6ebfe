"""The declarations fit the compiled header; the library that is loaded is the right one; failures are exceptions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import streamfp
from streamfp._library import _EXCEPTIONS, ffi, lib


def c_says(work: Path, body: str) -> str:
    (work / "layout.c").write_text(f"#include <stdio.h>\n#include <streamfp.h>\nint main(void)\n{{\n{body}\nreturn 0;\n}}\n")
    include = os.environ["STREAMFP_INCLUDE"]
    subprocess.run(["cc", "-I", include, "-o", work / "layout", work / "layout.c"], check=True)
    return subprocess.run([work / "layout"], check=True, capture_output=True, text=True).stdout


def test_every_struct_has_the_layout_of_the_compiled_header(tmp_path: Path) -> None:
    expected, body = [], []
    for name in ffi.list_types()[0]:
        type_ = ffi.typeof(name)
        if type_.kind != "struct" or type_.fields is None:
            continue
        expected.append(f"{name} {ffi.sizeof(type_)}")
        body.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, details in type_.fields:
            expected.append(f"{name}.{field} {details.offset} {ffi.sizeof(details.type)}")
            body.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
    assert len(expected) > 150
    assert c_says(tmp_path, "\n".join(body)).splitlines() == expected


def test_every_constant_has_the_value_of_the_compiled_header(tmp_path: Path) -> None:
    names = [name for type_ in ffi.list_types()[0] if ffi.typeof(type_).kind == "enum" for name in ffi.typeof(type_).relements]
    assert "SFP_ECANCELLED" in names
    assert c_says(tmp_path, "\n".join(f'printf("%d\\n", (int){name});' for name in names)).split() == [str(getattr(lib, name)) for name in names]


def test_every_status_is_an_exception() -> None:
    assert set(_EXCEPTIONS) == set(ffi.typeof("sfp_status").relements) - {"SFP_OK"}


def run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})


def test_a_library_of_another_version_is_refused() -> None:
    path = Path(streamfp.__file__).parent / "_abi.py"
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("streamfp._abi", {str(path)!r})
module = sys.modules["streamfp._abi"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.VERSION = "0.1.0"
import streamfp
"""
    assert f"is version {streamfp.__version__}, expected 0.1.0" in run(code).stderr


def test_a_library_that_is_missing_is_named() -> None:
    assert "build it (make library)" in run("import streamfp", STREAMFP_LIBRARY="/none/libstreamfp.so").stderr


def test_import_needs_no_scientific_package() -> None:
    code = "import sys, streamfp; print([m for m in ('sklearn', 'pandas', 'torch', 'PIL', 'matplotlib') if m in sys.modules])"
    assert run(code).stdout == "[]\n"


def test_a_failure_has_the_message_and_the_key_of_the_setting() -> None:
    with pytest.raises(streamfp.InvalidArgument) as caught:
        streamfp.Settings(batch=0)
    assert caught.value.key == "batch" and caught.value.message == str(caught.value) != ""
    with pytest.raises(ValueError, match="unknown"):
        streamfp.Settings({"no-such-setting": 1})
    with pytest.raises(LookupError):
        streamfp.Engine("none.safetensors")
    with pytest.raises(ValueError, match="zero"):
        streamfp.Engine("a\0b")


def test_settings_are_read_set_and_listed() -> None:
    settings = streamfp.Settings({"label-queue": 7}, method="slda", tap_mean=True, sigma=None)
    assert [settings.get(key) for key in ("label-queue", "label_queue", "tap-mean", "method")] == ["7", "7", "on", "slda"]
    assert settings.get("none") is None
    rows = {row.key: row for row in settings}
    assert rows["batch"].type == "int" and rows["batch"].scope == "learner" and rows["data"].scope == "run"
    with pytest.raises(TypeError, match="beside an object of settings"):
        streamfp.Learner(streamfp.Engine.random(), settings, method="ncm")


def test_messages_go_to_logging(caplog: pytest.LogCaptureFixture, photos: object) -> None:
    Path("photos/mug/broken.png").write_bytes(b"no image")
    with caplog.at_level("INFO", "streamfp"), streamfp.Run(data="folder:photos", tasks=1, out="run") as run_:
        run_.finish()
    assert [record.levelname for record in caplog.records if "broken.png" in record.getMessage()] == ["WARNING"]
