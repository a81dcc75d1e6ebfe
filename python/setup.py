"""Builds the package: the declarations for cffi, and the library of build/release (or STREAMFP_LIBRARY), if there is one.

With STREAMFP_WHEEL=1 the wheel also contains the libraries that it needs, and fits every Linux with this C library or a later one.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
try:
    import abi  # noqa: E402
except ImportError as error:
    raise SystemExit(f"{sys.executable} cannot build streamfp: {error}; install cffi (Debian: python3-cffi, for /usr/bin/python3)") from error

HEADER = HERE.parent / "include" / "streamfp.h"
LIBRARY = Path(os.environ.get("STREAMFP_LIBRARY", HERE.parent / "build" / "release" / "src" / "libstreamfp.so"))
VERSION = abi.preprocess(str(HEADER))[1]
WHOLE = os.environ.get("STREAMFP_WHEEL") == "1"
# libraries that every Linux has (PEP 600)
COMMON = re.compile(r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so)")


def said(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def copy_licence(library: Path, to: Path) -> None:
    """Copies the licence of the Debian package that contains a library."""
    for path in (library, Path(str(library).replace("/usr/lib/", "/lib/", 1))):
        found = subprocess.run(["dpkg", "-S", str(path)], capture_output=True, text=True).stdout
        if found:
            package = found.split(":")[0]
            shutil.copyfile(f"/usr/share/doc/{package}/copyright", to / f"{package}.copyright")
            return
    raise SystemExit(f"{library} belongs to no package, so its licence is not known")


def bundle(directory: Path) -> None:
    """Copies the libraries that the library needs, and sets their search paths to their own directory."""
    for line in said("ldd", LIBRARY).splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and not COMMON.match(name):
            source = Path(path.split(" ")[0]).resolve()
            shutil.copyfile(source, directory / name)
            copy_licence(source, directory)
    for library in directory.glob("*.so*"):
        said("patchelf", "--set-rpath", "$ORIGIN", library)


class Build(build_py):
    def run(self) -> None:
        package = Path(self.build_lib) / "streamfp"
        shutil.rmtree(package, ignore_errors=True)  # removes the files of an earlier version
        super().run()
        abi.main(str(HEADER), str(package / "_abi.py"))
        if LIBRARY.exists():
            libs = package / "libs"
            libs.mkdir()
            shutil.copyfile(LIBRARY, libs / ("libstreamfp.so." + VERSION.rpartition(".")[0]))
            if WHOLE:
                bundle(libs)
        elif WHOLE:
            raise SystemExit(f"{LIBRARY} does not exist; build it first: make library")


class Wheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not LIBRARY.exists()

    def get_tag(self) -> "tuple[str, str, str]":
        system = "linux"
        if WHOLE:
            system = "manylinux_" + platform.libc_ver()[1].replace(".", "_")
        return "py3", "none", "any" if self.root_is_pure else f"{system}_{platform.machine()}"


setup(version=VERSION, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
