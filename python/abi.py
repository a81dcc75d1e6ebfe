"""Writes streamfp/_abi.py: the declarations of streamfp.h as cffi has them, for the library at run time (ABI mode, out of line).

    python3 abi.py HEADER OUTPUT
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from typing import List, Tuple

from cffi import FFI


def preprocess(header: str) -> Tuple[str, str]:
    """The declarations of the header, unchanged, and its version. cffi knows the types of stddef.h and stdint.h."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stddef.h", "stdint.h"):
            open(os.path.join(empty, name), "w").close()
        source = f'#include "{os.path.abspath(header)}"\nSFP_VERSION_MAJOR.SFP_VERSION_MINOR.SFP_VERSION_PATCH\n'
        compiler: List[str] = shlex.split(os.environ.get("CC", "cc"))
        # without __GNUC__ there are no attributes
        command = [*compiler, "-E", "-P", "-undef", "-nostdinc", "-I", empty, "-x", "c", "-"]
        text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    text, _, version = text.rstrip().rpartition("\n")
    return text, re.sub(r"\s", "", version)


def main(header: str, output: str) -> None:
    text, version = preprocess(header)
    ffi = FFI()
    ffi.set_source("streamfp._abi", None)
    ffi.cdef(text)
    with tempfile.TemporaryDirectory() as work:
        made = os.path.join(work, "_abi.py")
        ffi.emit_python_code(made)
        with open(made) as file:
            module = file.read()
    with open(output, "w") as file:
        file.write(f"{module}\nVERSION = {version!r}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
