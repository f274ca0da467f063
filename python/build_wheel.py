"""Makes the wheel: the Python package with a keelson binary, which pip installs on the path.

Usage: build_wheel.py BINARY OUT_DIRECTORY [--platform manylinux_2_28_x86_64]. The same inputs give the same bytes.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import stat
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
#: The time of all members, so that two builds are equal.
EPOCH = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--platform", default="manylinux_2_28_x86_64")
    arguments = parser.parse_args()
    project = (HERE / "pyproject.toml").read_text()
    version = re.search(r'(?m)^version = "(.+)"$', project)[1]
    summary = re.search(r'(?m)^description = "(.+)"$', project)[1]
    info = f"keelson-{version}.dist-info"
    members = {}
    for path in sorted((HERE / "src" / "keelson").glob("*")):
        if path.suffix in (".py", ".typed"):
            members[f"keelson/{path.name}"] = (path.read_bytes(), 0o644)
    members[f"keelson-{version}.data/scripts/keelson"] = (arguments.binary.read_bytes(), 0o755)
    tag = f"py3-none-{arguments.platform}"
    metadata = [
        "Metadata-Version: 2.4",
        "Name: keelson",
        f"Version: {version}",
        f"Summary: {summary}",
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.9",
        "Provides-Extra: kubernetes",
        'Requires-Dist: kubernetes>=28; extra == "kubernetes"',
        "Provides-Extra: kr8s",
        'Requires-Dist: kr8s>=0.17; extra == "kr8s"',
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ]
    wheel = f"Wheel-Version: 1.0\nGenerator: keelson\nRoot-Is-Purelib: false\nTag: {tag}\n"
    members[f"{info}/METADATA"] = ("\n".join(metadata).encode(), 0o644)
    members[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    members[f"{info}/entry_points.txt"] = (b"[pytest11]\nkeelson.pytest_plugin = keelson.pytest_plugin\n", 0o644)
    members[f"{info}/licenses/LICENSE"] = ((HERE.parent / "LICENSE").read_bytes(), 0o644)
    lines = []
    for name, (content, _) in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    lines.append(f"{info}/RECORD,,")
    members[f"{info}/RECORD"] = (("\n".join(lines) + "\n").encode(), 0o644)
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / f"keelson-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (content, mode) in members.items():
            member = zipfile.ZipInfo(name, EPOCH)
            member.external_attr = (stat.S_IFREG | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content)
    print(target)


if __name__ == "__main__":
    main()
