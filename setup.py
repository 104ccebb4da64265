"""Builds the C engine into the Python package, as a plain shared library for ctypes.

The extension builder of setuptools is enough: it finds the compiler and builds in place for
editable installs. The extension is optional. Without a compiler the build prints a warning and
continues; surnn works without the engine, and ``surnn.Engine`` explains how to build it. A build
backend on top of CMake would make CMake and ninja requirements of every source install.
CMakeLists.txt is for users of the C library.
"""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

LIBRARY = "surnn.libsurnn"
SOURCES = sorted(str(p) for p in Path("csrc").glob("*.c") if p.name != "main.c")


class BuildLibrary(build_ext):
    """Builds a library that does not link to Python, and names it ``.so`` or ``.dll``."""

    def get_ext_filename(self, fullname: str) -> str:
        suffix = ".dll" if self.plat_name.startswith("win") else ".so"
        return fullname.replace(".", "/") + suffix

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols or []

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "msvc":
            ext.extra_compile_args = ["/O2"]
        else:
            # -g0 and -s: no debugging symbols, which are most of an unstripped library.
            ext.extra_compile_args = ["-O3", "-g0", "-fvisibility=hidden", "-pthread"]
            ext.extra_link_args = ["-pthread"] + ([] if sys.platform == "darwin" else ["-s"])
            ext.libraries = ["m"]
        super().build_extension(ext)


class BuildWithSources(build_py):
    """Copies the C sources into the package, where the export to C reads them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "surnn", "csrc")
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree("csrc", folder, dirs_exist_ok=True)


class AnyPythonWheel(bdist_wheel):
    """Tags the wheel for any version of Python 3, and for a platform if it has the library.

    Without a compiler there is no library. Such a wheel runs everywhere, and its tag says so.
    """

    def get_tag(self) -> tuple[str, str, str]:
        platform = super().get_tag()[2] if self._has_library() else "any"
        return "py3", "none", platform

    def _has_library(self) -> bool:
        return any(Path(self.bdist_dir or ".", "surnn").glob("libsurnn.*"))


setup(
    ext_modules=[
        Extension(
            LIBRARY,
            SOURCES,
            depends=[str(p) for p in Path("csrc").glob("*.[hi]*")],
            define_macros=[("SURNN_SHARED", "1")],
            optional=True,
        )
    ],
    cmdclass={
        "build_ext": BuildLibrary,
        "build_py": BuildWithSources,
        "bdist_wheel": AnyPythonWheel,
    },
)
