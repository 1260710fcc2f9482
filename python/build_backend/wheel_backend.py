"""Builds the wheel of ttr with the standard library alone (the hooks of PEP 517): Python files, and libttr_c.so beside them.

The library is, in this order: the file that TTR_LIBRARY names; build/libttr_c.so, brought up to date if the build tree is
there; or one that CMake builds for this in build/python. libttr_language_c.so (ttr.load_model) comes along if it lies beside
that library, and with both what they need besides every system's libraries. A wheel is for one platform and every Python from
3.9 on, since the package calls the libraries through ctypes.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "ttr"


def _version():
    text = (ROOT / "include" / "ttr" / "version.h").read_text()
    return re.search(r'TTR_VERSION "([0-9.]+)"', text).group(1)


def _library():
    named = os.environ.get("TTR_LIBRARY")
    if named:
        return Path(named).resolve()
    jobs = ["-j", str(os.cpu_count() or 1)]
    if (ROOT / "build" / "CMakeCache.txt").exists():
        options = (ROOT / "build" / "CMakeCache.txt").read_text()
        targets = ["ttr_c"] + ["ttr_language_c"] * ("TTR_LANGUAGE:BOOL=ON" in options)
        subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", *targets, *jobs], check=True)
        return (ROOT / "build" / "libttr_c.so").resolve()
    tree = ROOT / "build" / "python"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DTTR_CLI=OFF", "-DTTR_TESTS=OFF", "-DTTR_MODEL=OFF"]
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(tree), *options], check=True)
    subprocess.run(["cmake", "--build", str(tree), "--target", "ttr_c", *jobs], check=True)
    return (tree / "libttr_c.so").resolve()


def _companions(library):
    """Shared libraries besides those of every system, which travel with the wheel: Highway; PCRE2 and utf8proc, of tokenizers."""
    listed = subprocess.run(["ldd", str(library)], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"(lib(?:hwy|pcre2|utf8proc)\S*) => (\S+)", listed)
    return [(name, Path(path)) for name, path in found]


def _metadata():
    lines = ["Metadata-Version: 2.1", "Name: ttr", f"Version: {_version()}"]
    lines += ["Summary: Test-time regression: sequence layers as regression problems", "Requires-Python: >=3.9"]
    lines += ["Requires-Dist: numpy", "Provides-Extra: torch", "Requires-Dist: torch>=1.13; extra == 'torch'"]
    lines += ["Provides-Extra: sklearn", "Requires-Dist: scikit-learn; extra == 'sklearn'"]
    return "\n".join(lines) + "\n"


def _tag():
    return "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _write_wheel(path, files):
    info = f"ttr-{_version()}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: ttr\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {}
    for source in sorted(PACKAGE.rglob("*")):
        if source.suffix in (".py", ".pyi") or source.name == "py.typed":
            files["ttr/" + source.relative_to(PACKAGE).as_posix()] = source.read_bytes()
    library = _library()
    parts = {"libttr_c.so": library}
    language = library.parent / "libttr_language_c.so"
    if language.exists():
        parts[language.name] = language
    for part, source in parts.items():
        files["ttr/" + part] = source.read_bytes()
        for name, path in _companions(source):
            files["ttr/" + name] = path.read_bytes()
    name = f"ttr-{_version()}-{_tag()}.whl"
    _write_wheel(Path(wheel_directory) / name, files)
    return name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that points at python/ of this tree; the library is then that of the build tree."""
    _library()
    name = f"ttr-{_version()}-{_tag()}.whl"
    _write_wheel(Path(wheel_directory) / name, {"ttr.pth": f"{PACKAGE.parent}\n".encode()})
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = f"ttr-{_version()}"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode != 0:
        raise SystemExit("a source distribution is made of what git lists, and this is no checkout")
    path = Path(sdist_directory) / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file in listed.stdout.decode().split("\0"):
            if file:
                archive.add(ROOT / file, f"{name}/{file}")
        notes = Path(sdist_directory) / "PKG-INFO"
        notes.write_text(_metadata())
        archive.add(notes, f"{name}/PKG-INFO")
        notes.unlink()
    return path.name


def get_requires_for_build_wheel(config_settings=None):
    if shutil.which("cmake") is None and not os.environ.get("TTR_LIBRARY"):
        raise SystemExit("building ttr needs cmake (Debian: cmake, g++, libhwy-dev), or TTR_LIBRARY=path/to/libttr_c.so")
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
