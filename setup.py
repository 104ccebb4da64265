"""Builds the C engine beside the Python package, as a plain shared library for ctypes.

setuptools' own extension builder, marked optional, does all that is needed: it finds the compiler,
builds in place for editable installs, and where there is no compiler it warns and goes on (surnn
works without; ``surnn.Engine`` says how to get it). A build backend around CMake would bring CMake
and ninja as requirements of every source install for eight C files. CMakeLists.txt is for users of
the C library.
"""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

LIBRARY = "surnn.libsurnn"
SOURCES = sorted(str(p) for p in Path("csrc").glob("*.c") if p.name != "main.c")


class BuildLibrary(build_ext):
    """A library without Python in it: named after the system's custom, not the interpreter's."""

    def get_ext_filename(self, fullname: str) -> str:
        ending = ".dll" if self.plat_name.startswith("win") else ".so"
        return fullname.replace(".", "/") + ending

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols or []

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "msvc":
            ext.extra_compile_args = ["/O2"]
        else:
            ext.extra_compile_args = ["-O3", "-fvisibility=hidden"]
            ext.libraries = ["m"]
        super().build_extension(ext)


class WithSources(build_py):
    """The package brings the C files, so that models can be exported with them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "surnn", "csrc")
            folder.mkdir(parents=True, exist_ok=True)
            for source in Path("csrc").iterdir():
                shutil.copy(source, folder)


class AnyPython(bdist_wheel):
    """The wheel is of a platform, not of a version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


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
    cmdclass={"build_ext": BuildLibrary, "build_py": WithSources, "bdist_wheel": AnyPython},
)
