"""backends_test.py - one program (prog.py) on the backend that TEST_BACKEND names: docker, kubernetes, slurm, or tcp, which
is this machine with every connection over TCP and TLS. The image is the one that Fiber makes of the interpreter, its
virtual environment and the program's folder.

SPDX-License-Identifier: Apache-2.0
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BACKEND = os.environ.get("TEST_BACKEND", "tcp")
BED = os.path.join(os.path.dirname(os.path.dirname(HERE)), "beds", BACKEND, "bed")
FIBER = os.path.join(os.environ.get("TEST_BINARY_DIR", ""), "cli", "fiber")
LONG = 300
IMAGE = "fiber-python-test:1"
SPACE = "fiber-python"  # a namespace with what `fiber kubernetes manifest` has
ALONE = BACKEND == "tcp"  # all processes are on one host
FAR = BACKEND in ("docker", "kubernetes")  # each process is on a host of its own

EXPECTED = {
    "process": "process (1, 'two') {'three': 3.0} a process True 0 " + ("here" if ALONE else "elsewhere"),
    "codes": "codes 7 8 1 -15",
    "pool": "pool True True",
    "exceptions": "exceptions KeyError RuntimeError MaybeEncodingError 'raised in a task' True True",
    "output": "output",
    "executor": "executor 3 [4, 6]",
    "meta": "meta 300 0" if FAR else "meta (None|[0-9]+) 0",
    "queue": "queue True True 0",
    "pipe": "pipe [2, 'aa'] 2097152 0",
    "manager": "manager True 1 1 KeyError('missing')",
    "asynchronous": "asynchronous [1, 11, 3, 13] ValueError('refused by the counter')",
    "put": "put 1000 0",
    "memory": "memory 0 2" if ALONE else "memory 1 1",
    "shared": "shared b'built here' b'built here' b'built here' 0" if ALONE else
              "shared b'built here' FileNotFoundError b'built there' 0",
    "ring": "ring [(0, 2, '2'), (1, 2, '2')] 0",
}
PATTERNS = {"meta"}


def run(*argv, folder=None, env=None, timeout=LONG):
    done = subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout)
    print(done.stdout, done.stderr, sep="--- standard error\n")  # pytest shows it of a test that fails
    return done


class Place:
    """A virtual environment, a folder with the program, and the variables of a master there."""

    def __init__(self, folder):
        self.folder = folder / "program"
        self.folder.mkdir()
        shutil.copy(os.path.join(HERE, "prog.py"), self.folder)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
        self.python = str(folder / "env" / "bin" / "python")
        package = os.path.dirname(os.path.dirname(__import__("fiber").__file__))
        self.env = {**os.environ, "PYTHONPATH": package, **self.bed(folder)}
        for name in ("FIBER_IMAGE", "FIBER_IMAGE_ADD"):
            self.env.pop(name, None)
        self.env["PATH"] = os.path.dirname(FIBER) + os.pathsep + self.env["PATH"]
        if BACKEND == "kubernetes":
            self.env.update(FIBER_IMAGE=self.import_image(folder), FIBER_KUBERNETES_PULL_POLICY="Never")

    def import_image(self, folder):
        """The image is put on the node, which has no registry. It is there once for the same files."""
        tar = str(folder / "image.tar")
        made = run(self.python, "-m", "fiber.image", "export", "python:1", "prog.py", "-o", tar, folder=self.folder,
                   env=self.env)
        assert made.returncode == 0, made.stderr
        assert run(BED, "import", IMAGE, tar).returncode == 0
        os.unlink(tar)
        return IMAGE

    def bed(self, folder):
        if BACKEND == "tcp":
            return {"FIBER_BACKEND": "local", "FIBER_TRANSPORT": "tcp"}
        done = subprocess.run([BED, "try"] + ["3"] * (BACKEND == "slurm"), capture_output=True, text=True, timeout=LONG)
        if done.returncode == 77:
            pytest.skip(done.stdout.strip().splitlines()[-1])
        assert done.returncode == 0, done.stdout + done.stderr
        said = subprocess.run(["bash", "-c", 'eval "$("$0" env)"; env -0', BED], check=True, capture_output=True, text=True).stdout
        env = dict(line.split("=", 1) for line in said.split("\0") if "=" in line)
        if BACKEND == "slurm":
            shared = folder / "shared"
            shared.mkdir()
            env.update(FIBER_SLURM_DIR=str(shared), FIBER_SLURM_POLL="200ms")
        return {**env, "FIBER_BACKEND": BACKEND, "FIBER_GRACE": "2s", "FIBER_START_TIMEOUT": "300s"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place"))


def check(out, names):
    """Each part has printed the line that it has to print."""
    wrong = []
    for name in names:
        pattern = EXPECTED[name] if name in PATTERNS else re.escape(EXPECTED[name])
        if not re.search("(?m)^%s$" % pattern, out):
            wrong.append("no line %r" % EXPECTED[name])
    assert not wrong, "%s in\n%s" % (wrong, out)


def test_all_parts(place):
    ran = run(place.python, "prog.py", folder=place.folder, env=place.env)
    check(ran.stdout, EXPECTED)
    assert ran.returncode == 0
    errors = ran.stdout if BACKEND == "kubernetes" else ran.stderr  # both streams of a pod come as one
    for x in ("one", "two"):
        assert ran.stdout.count("printed by a worker: %s\n" % x) == 1
        assert errors.count("written by a worker: %s\n" % x) == 1
    assert "ValueError: raised in a process" in errors
    assert ALONE or "this process runs on another host; use Manager().Value" in errors


# ---- Masters in containers ----

SOME = ("process", "pool", "queue", "manager", "output")


@pytest.mark.skipif(BACKEND != "docker", reason="`fiber run` makes an image of a Python program on Docker")
def test_fiber_run(place):
    """The rank is a master in a container, whose jobs run in its image."""
    ran = run(FIBER, "run", "-b", "docker", "-n", "1", place.python, "prog.py", "codes", "pool", "queue",
              folder=place.folder, env=place.env)
    check(ran.stdout, ("codes", "pool", "queue"))
    assert ran.returncode == 0


@pytest.fixture
def space():
    """A namespace where our account may start masters."""
    def kubectl(*argv, **options):
        return subprocess.run([BED, "kubectl", *argv], capture_output=True, text=True, timeout=LONG, **options)
    kubectl("delete", "namespace", SPACE, "--ignore-not-found")
    kubectl("create", "namespace", SPACE, check=True)
    manifest = subprocess.run([FIBER, "kubernetes", "manifest", "-N", SPACE], check=True, capture_output=True, text=True)
    ours = "  - {kind: ServiceAccount, name: fiber, namespace: fiber}\n"
    kubectl("apply", "-f", "-", input=re.sub("(?m)^(.*kind: User.*\n)", r"\1" + ours, manifest.stdout), check=True)
    for question in (["auth", "can-i", "create", "pods", "-n", SPACE, "--as", "system:serviceaccount:fiber:fiber"],
                     ["-n", SPACE, "get", "serviceaccount", "default"]):
        end = time.monotonic() + LONG
        while kubectl(*question).returncode:
            assert time.monotonic() < end, "%s does not hold" % question
            time.sleep(0.1)  # between two questions
    yield SPACE
    kubectl("delete", "namespace", SPACE, "--wait=false")


@pytest.mark.skipif(BACKEND != "kubernetes", reason="`fiber kubernetes run` needs Kubernetes")
def test_a_master_in_the_cluster(place, space):
    """From the image and the manifest to the output: the recipe of docs/python.md."""
    ran = run(FIBER, "kubernetes", "run", "-q", "-N", space, "-i", IMAGE, "--", place.python,
              str(place.folder / "prog.py"), *SOME, folder=place.folder, env=place.env)
    check(ran.stdout, SOME)
    assert ran.returncode == 0 and "printed by a worker: two" in ran.stdout


# ---- Images that do not fit ----

LACKING = """
import fiber as mp

if __name__ == "__main__":
    with mp.Pool(3) as pool:
        try:
            pool.map(abs, range(3))
        except mp.ProcessError as error:
            print(error)
"""


@pytest.mark.skipif(not FAR, reason="an image is needed")
def test_an_image_without_the_interpreter(place):
    """The pool says so after four starts or, where more are on their way, a few more."""
    image = "fiber-python-bare:1"
    subprocess.run([BED, "image", image, "/bin/sh"], check=True, capture_output=True)
    (place.folder / "lacking.py").write_text(LACKING)
    ran = run(place.python, "lacking.py", folder=place.folder, env={**place.env, "FIBER_IMAGE": image})
    starts = int(ran.stdout.split()[0])
    assert 4 <= starts <= 6, ran.stdout
    assert "workers in a row could not be started" in ran.stdout and "set FIBER_PYTHON" in ran.stdout
    (place.folder / "lacking.py").unlink()  # one image for all tests


def other_python():
    """An interpreter of another minor version."""
    for minor in range(11, 16):
        for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.%d.*/bin/python3" % minor))):
            if minor != sys.version_info[1]:
                return path
    return None


@pytest.mark.skipif(BACKEND != "docker", reason="one engine is enough")
def test_an_image_with_another_version(place):
    other = other_python()
    if other is None:
        pytest.skip("no other version of Python is here")
    image = "fiber-python-other:1"
    made = run(other, "-m", "fiber.image", "build", image, "prog.py", folder=place.folder, env=place.env)
    assert made.returncode == 0, made.stderr
    env = {**place.env, "FIBER_IMAGE": image, "FIBER_PYTHON": other}
    ran = run(place.python, "prog.py", "output", folder=place.folder, env=env)
    assert ran.returncode == 1 and "output FAILED" in ran.stdout
    assert re.search(r"this process has Python and fiber 3\.\d+ \S+, its parent has 3\.%d \S+: they must be the same"
                     % sys.version_info[1], ran.stderr)
    assert "workers in a row could not be started" in ran.stderr
