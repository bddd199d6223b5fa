"""Packs the wheel of all programs and packages; `scripts/wheel` builds its programs and calls this script.

It contains the programs `opcollect`, `opcollect-worker`, `opcollect-board` and `oppredict`, the Python packages `opcollect` and
`oppredict`, and datasets/published. TVM, NVRTC and XGBoost are pinned dependencies, which pip installs beside it. Prints the path
of the wheel. A wheel is a zip file with four files of metadata, which is simpler than another tool to install and pin. It runs on
machines of the same processor family with the same or a newer C library.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAG = "cp310-abi3-{}"


PROGRAMS = ("opcollect", "opcollect-worker", "opcollect-board", "oppredict")
# Those that are commands; the others are started by `opcollect`.
COMMANDS = ("opcollect", "oppredict")
# Sources of Python. `_opcollect` also starts the programs: Python starts in 20 ms, and is gone when the program begins.
PACKAGES = ("_opcollect", "opcollect", "oppredict")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, type=Path, help="folder of what was compiled")
    parser.add_argument("--debug", action="store_true", help="compress less, which is faster")
    parser.add_argument("folder", type=Path, help="folder of the wheel")
    arguments = parser.parse_args()
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    files = package(arguments.programs)
    about = f"opcollect-{version}.dist-info"
    tag = TAG.format("linux_" + os.uname().machine)
    files[f"{about}/METADATA"] = (
        "Metadata-Version: 2.4\nName: opcollect\n"
        f"Version: {version}\nSummary: Measures operators of neural networks, and predicts their times\n"
        "License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.10\n"
        + "".join(f"Requires-Dist: {pin}\n" for pin in pins())
    ).encode()
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: scripts/wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    commands = "".join(f"{name} = _opcollect:start\n" for name in COMMANDS)
    files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{commands}".encode()
    files[f"{about}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{about}/RECORD"] = record(files, f"{about}/RECORD")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wheel = arguments.folder / f"opcollect-{version}-{tag}.whl"
    write(wheel, files, arguments.debug)
    print(wheel)


def pins():
    """The wheels that the programs open; exactly those they are tested with."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines())
    return [line for line in lines if line]


def package(target):
    files = {f"opcollect/bin/{name}": stripped(target / name) for name in PROGRAMS}
    published = ROOT / "datasets/published"
    shipped = sorted(path for path in published.rglob("*") if path.is_file())
    files |= {f"opcollect/published/{path.relative_to(published)}": path.read_bytes() for path in shipped}
    sources = sorted(path for name in PACKAGES for path in (ROOT / "python" / name).iterdir() if path.is_file())
    files |= {f"{path.parent.name}/{path.name}": path.read_bytes() for path in sources}
    return files | {"_opcollect/native.abi3.so": stripped(target / "lib_opcollect.so")}


def stripped(path):
    """A program without what only debuggers read, where there is a tool for that."""
    with tempfile.NamedTemporaryFile() as copy:
        tool = shutil.which("strip")
        if tool and subprocess.run([tool, "--strip-debug", "-o", copy.name, path]).returncode == 0:
            return Path(copy.name).read_bytes()
    return path.read_bytes()


def record(files, own):
    def line(name, content):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(content)}\n"

    return ("".join(line(*file) for file in files.items()) + f"{own},,\n").encode()


def write(path, files, fast):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1 if fast else 9) as wheel:
        for name, content in files.items():
            # Always the same date, so that the same sources make the same wheel.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            # A regular file: otherwise pip leaves out that it may be executed.
            entry.external_attr = (0o100755 if "/bin/" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content, compresslevel=1 if fast else 9)


if __name__ == "__main__":
    main()
