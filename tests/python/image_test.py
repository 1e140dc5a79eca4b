"""image_test.py - what goes into an image of a program: no engine is needed.

SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os
import subprocess
import sys
import zipapp

import pytest
from fiber import image

PROGRAM = """
import fiber
from fiber import _core

if __name__ == "__main__":
    fiber.init(%s)
    words = _core.start().config_get("image_add").split()
    lists = [w[1:] for w in words if w[0] == "@"]
    print(len(lists), words[0])
    for path in lists:
        print(open(path).read(), end="")
"""


def run(folder, settings, **env):
    (folder / "program.py").write_text(PROGRAM % settings)
    (folder / "other.py").write_text("")
    done = subprocess.run([sys.executable, folder / "program.py"], env={**os.environ, **env}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, *paths = done.stdout.splitlines()
    return first.split(), paths


@pytest.mark.parametrize("settings, env", [("", {"FIBER_BACKEND": "docker"}), ("backend='docker'", {})])
def test_docker_gets_the_interpreter_the_library_and_the_folder(tmp_path, settings, env):
    (count, first), paths = run(tmp_path, settings, **env)
    assert count == "1" and first == sys.executable
    assert os.path.realpath(os.__file__) in map(os.path.realpath, paths)
    assert subprocess.__cached__ in paths or not os.path.exists(subprocess.__cached__)
    assert str(tmp_path / "program.py") in paths and str(tmp_path / "other.py") in paths
    assert not [path for path in paths if os.path.basename(path) in ("test", "idlelib")]


def test_a_program_that_is_an_archive_goes_along(tmp_path):
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text(PROGRAM % "")
    zipapp.create_archive(tmp_path / "program", tmp_path / "program.pyz")
    done = subprocess.run([sys.executable, tmp_path / "program.pyz"], env={**os.environ, "FIBER_BACKEND": "docker"},
                          capture_output=True, text=True, timeout=120)
    assert str(tmp_path / "program.pyz") in done.stdout.splitlines(), done


FINDER = """
import importlib.util, os, sys

MAPPING = {"fiber_test_package": %r, "fiber_test_module": %r, "fiber_test_missing": "/nonexistent"}


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        place = MAPPING.get(name, "")
        if os.path.isdir(place):
            return importlib.util.spec_from_file_location(name, place + "/__init__.py")
        return importlib.util.spec_from_file_location(name, place + ".py") if os.path.exists(place + ".py") else None


sys.meta_path.append(Finder)
"""


def test_editable_packages_go_along(tmp_path, monkeypatch):
    """As setuptools installs them: a finder in the site's folder knows where they are."""
    project, site = tmp_path / "project", tmp_path / "site"
    (project / "package").mkdir(parents=True)
    files = [project / "package" / "__init__.py", project / "package" / "data.txt", project / "module.py"]
    for path in files:
        path.write_text("")
    site.mkdir()
    (site / "fiber_test_finder.py").write_text(FINDER % (str(project / "package"), str(project / "module")))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    importlib.import_module("fiber_test_finder")
    assert {str(path) for path in files} <= set(image.program_files(named=True))


def test_files_that_the_user_names_replace_the_folder(tmp_path):
    (count, _), paths = run(tmp_path, "", FIBER_BACKEND="docker", FIBER_IMAGE_ADD="/etc/hostname")
    assert count == "1" and str(tmp_path / "other.py") not in paths


def test_a_folder_goes_without_version_control_and_environments(tmp_path):
    for name in ("a.py", "deep/b.py", ".git/config", "venv/pyvenv.cfg", "venv/c.py", "__pycache__/a.pyc",
                 "node_modules/d.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert image.tree(str(tmp_path)) == [str(tmp_path / "a.py"), str(tmp_path / "deep" / "b.py")]


def test_a_folder_goes_without_files_that_its_user_may_not_read(tmp_path):
    for name, mode in (("a.py", 0o644), ("log", 0)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    tmp_path.chmod(0o755)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)  # where root's parent folders do not count
            if os.getuid() == 0:
                os.setuid(65534)
            os._exit(0 if image.tree(".") == ["./a.py"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_folder_that_is_too_large_is_an_error_that_says_what_to_do(tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(ValueError, match="image_add"):
        image.tree(str(tmp_path))


def test_a_path_of_modules_goes_into_the_image_of_the_command(tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "program.py").write_text("")
    command = tmp_path / "bin" / "fiber"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    paths = [os.environ["PYTHONPATH"], str(tmp_path / "modules")]
    env = {**os.environ, "PYTHONPATH": ":".join(paths), "PATH": "%s:%s" % (command.parent, os.environ["PATH"])}
    done = subprocess.run([sys.executable, "-m", "fiber.image", "build", "name:1", "program.py"], cwd=tmp_path, env=env,
                          capture_output=True, text=True, timeout=120)
    words = done.stdout.splitlines()
    assert words[:4] == ["image", "build", "name:1", sys.executable], done
    assert "PYTHONPATH=" + ":".join(paths) == words[words.index("-e") + 1]
    assert str(tmp_path / "modules") in words and str(tmp_path / "program.py") in words
    assert words.count("--cluster") == 1, "a program in a container starts jobs from there"


def test_the_command_says_how_it_is_used(capsys):
    assert image.main(["build", "name"]) == 2
    assert "usage" in capsys.readouterr().err
