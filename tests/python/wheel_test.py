"""wheel_test.py - the wheel: what is in it, and that it runs where it is installed, by every version of Python.

SPDX-License-Identifier: Apache-2.0
"""
import glob
import os
import subprocess
import sys
import zipfile

import pytest

SOURCE = os.environ["TEST_SOURCE_DIR"]
LONG = 1500

PROGRAM = """
import fiber as mp
import sys

def f(x):
    print("child", x, sys.version_info[:2])
    sys.exit(x)

if __name__ == "__main__":
    p = mp.Process(target=f, args=(3,))
    p.start()
    p.join()
    print("parent", p.exitcode, mp.__file__)
"""


def run(*argv, env=None, **options):
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(argv, env={**clean, **(env or {})}, capture_output=True, text=True, timeout=LONG, **options)


def make_environment(folder, python, *options):
    done = run(python, "-m", "venv", *options, folder)
    if done.returncode:
        pytest.skip("venv: " + (done.stderr or done.stdout).strip())
    return os.path.join(folder, "bin", "python")


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """An interpreter that has pip."""
    return make_environment(tmp_path_factory.mktemp("builder"), sys.executable)


@pytest.fixture(scope="module")
def wheel(builder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = run(builder, "-m", "pip", "install", "-q", "--disable-pip-version-check", "scikit-build-core")
    if done.returncode:
        pytest.skip("scikit-build-core cannot be installed here: " + done.stderr.strip()[-200:])
    done = run(builder, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder / "out",
               "--config-settings=build-dir=%s" % (folder / "build"), SOURCE)  # the same each time, for ccache
    assert done.returncode == 0, done.stdout + done.stderr
    found, = glob.glob(str(folder / "out" / "*.whl"))
    return found


def test_one_file_for_all_versions(wheel):
    name = os.path.basename(wheel)
    assert name.startswith("fiber_cluster-") and "-cp311-abi3-" in name


def test_the_library_is_in_it_once(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert [n for n in names if "libfiber" in n] == ["fiber/_lib/libfiber.so.0"]
    for part in ("fiber/_fiber.abi3.so", "fiber/_lib/fiber/crypto.so", "fiber/_lib/bin/fiber", "fiber/py.typed",
                 "fiber/__init__.py", "fiber/__init__.pyi"):
        assert part in names
    assert not [n for n in names if not n.startswith(("fiber/", "fiber_cluster-"))]


def test_pyinstaller_finds_what_no_import_names(builder, wheel, tmp_path):
    """PyInstaller runs the hooks of an entry point, and takes these two lists of them."""
    python = make_environment(tmp_path / "env", sys.executable, "--without-pip")
    done = run(builder, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check", "--no-index", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(python, "-c", """
import importlib.metadata, os, runpy
[hooks] = importlib.metadata.entry_points(group="pyinstaller40", name="hook-dirs")
[folder] = hooks.load()()
hook = runpy.run_path(os.path.join(folder, "hook-fiber.py"))
for name in hook["hiddenimports"]:
    importlib.import_module(name)
print("fiber.ring" in hook["hiddenimports"], all(os.path.isfile(path) for path, _ in hook["binaries"]))
print(*sorted(os.path.join(folder, os.path.basename(path)) for path, folder in hook["binaries"]))
""")
    lines = done.stdout.splitlines()
    assert lines and lines[0] == "True True", done
    names = [n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("fiber/_lib/")]
    assert lines[1].split() == sorted(names)


def test_it_names_no_folder_of_its_build(wheel):
    archive = zipfile.ZipFile(wheel)
    assert not [n for n in archive.namelist() if b"wheel/platlib" in archive.read(n)]


def pythons():
    """One interpreter of each version."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(11, 16):
        for path in glob.glob(os.path.expanduser("~/.pyenv/versions/3.%d.*/bin/python3" % minor)):
            found.setdefault((3, minor), path)
    return found


@pytest.mark.parametrize("version", sorted(pythons()))
def test_it_runs_in_a_virtual_environment(builder, wheel, tmp_path, version):
    python = make_environment(tmp_path / "env", pythons()[version], "--without-pip")
    done = run(builder, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check", "--no-index", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "prog.py").write_text(PROGRAM)
    for transport in ("auto", "tcp"):  # which needs the library's module for TLS
        done = run(python, "prog.py", cwd=tmp_path / "elsewhere", env={"FIBER_TRANSPORT": transport})
        lines = done.stdout.splitlines()
        assert lines[0] == "child 3 (%d, %d)" % version and lines[1].startswith("parent 3 %s" % tmp_path), done
    for command in ([os.path.join(os.path.dirname(python), "fiber")], [python, "-m", "fiber"], [python, "-m", "fiber.cli"]):
        done = run(*command, "--version")
        assert done.returncode == 0 and done.stdout.startswith("fiber ") and "docker" in done.stdout, done
