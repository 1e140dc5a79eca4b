"""config_test.py - settings: by attribute, by init(), from the environment; @fiber.meta; the backend.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import subprocess

import pytest

import fiber
import fiber.config as config


@pytest.fixture(autouse=True)
def as_before():
    yield
    fiber.reset()


def test_an_attribute_is_a_setting():
    config.heartbeat_misses = 7
    assert config.heartbeat_misses == 7
    config.tag_output = True
    assert config.tag_output is True
    config.heartbeat_misses = None
    assert config.heartbeat_misses == 3


def test_init_tells_what_changed():
    assert fiber.init(heartbeat_misses=4, cpu_per_job=2, linger="5s") == ["heartbeat_misses", "cpu_per_job"]
    assert (config.heartbeat_misses, config.cpu_per_job) == (4, 2)
    fiber.reset()
    assert (config.heartbeat_misses, config.cpu_per_job) == (3, 1)


def test_settings_of_fiber_0_2():
    fiber.init(debug=True)
    assert config.log_level == "debug"
    fiber.reset()
    config.log_level = "WARNING"
    assert config.log_level == "warn"
    fiber.init(default_backend="slurm")
    assert config.backend == "slurm"
    fiber.init(default_image="an/image")
    assert config.image == "an/image"


def test_a_pod_that_may_start_no_others_says_no_backend(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # and there is no token
    fiber.init(default_backend="slurm")
    assert config.backend == "slurm"


def test_wrong_settings():
    with pytest.raises(ValueError, match="hartbeat"):
        fiber.init(hartbeat="5s")
    with pytest.raises(AttributeError):
        config.hartbeat = "5s"
    with pytest.raises(AttributeError):
        config.hartbeat
    with pytest.raises(ValueError, match="heartbeat"):
        config.heartbeat = "soon"
    with pytest.raises(fiber.ProcessError, match="Invalid backend"):
        fiber.init(backend="nothing")
    for value in "many", -1, []:
        with pytest.raises(ValueError, match="cpu_per_job is "):
            fiber.init(cpu_per_job=value)
    assert config.cpu_per_job == 1


@pytest.mark.parametrize("value", [["prog.py", "data"], ("prog.py",), b"prog.py", {}])
def test_the_text_of_a_list_is_no_setting(value):
    with pytest.raises(TypeError, match="image_add is a text"):
        fiber.init(image_add=value)
    assert config.image_add == ""


def test_all_settings_are_known():
    command = pathlib.Path(os.environ["TEST_BINARY_DIR"], "cli", "fiber")
    table = json.loads(subprocess.run([command, "config", "show", "--json"], capture_output=True, check=True).stdout)
    assert sorted(config.LIBRARY) == sorted(row["key"] for row in (table["settings"] if "settings" in table else table))
    assert set(config.get_dict()) == {*config.LIBRARY, *config.FRONT}
    assert config.get_object().heartbeat_misses == 3


def test_the_environment(python):
    ran = python("-c", """if 1:
        import fiber, os
        print(fiber.config.cpu_per_job, fiber.config.backend, fiber.config.heartbeat, fiber.config.use_bash)
        print(os.environ["FIBER_CPU_PER_JOB"])""", env={
            "FIBER_CPU_PER_JOB": "3", "FIBER_DEFAULT_BACKEND": "slurm", "FIBER_HEARTBEAT": "4s", "FIBER_USE_BASH": "true"})
    assert (ran.code, ran.out) == (0, "3 slurm 4s True\n3\n"), ran


def test_init_reads_a_changed_environment(python):
    ran = python("-c", """if 1:
        import fiber, os
        print(fiber.config.heartbeat)
        os.environ["FIBER_HEARTBEAT"] = "3s"
        print(fiber.config.heartbeat, fiber.init(grace="7s"), fiber.config.heartbeat)
        fiber.config.heartbeat = "5s"
        print(fiber.init(), fiber.config.heartbeat)  # it did not change since
        del os.environ["FIBER_HEARTBEAT"]
        print(fiber.init(), fiber.config.heartbeat)""", env={"FIBER_HEARTBEAT": "2s"})
    assert (ran.code, ran.out) == (0, "2s\n2s ['heartbeat', 'grace'] 3s\n[] 5s\n['heartbeat'] 2s\n"), ran


def test_a_file_of_fiber_0_2(python, tmp_path):
    (tmp_path / ".fiberconfig").write_text("[default]\nlog_level=WARNING\nlog_file=stdout\ncpu_per_job: 3 ; a comment\n"
                                           "use_bash=True\ndefault_backend=slurm # ours\n#mem_per_job=7\n")
    ran = python("-c", """if 1:
        import fiber, fiber.config as config
        print(config.cpu_per_job, config.backend, config.log_level, config.use_bash, config.mem_per_job)
        print(config.get_object().cpu_per_job, config.Config.from_dict({"image": "mine"}).image)""")
    assert (ran.code, ran.out) == (0, "3 slurm warn True None\n3 mine\n"), ran
    assert ".fiberconfig:3: log_file is a setting of Fiber 0.2" in ran.err and "cpu_per_job" not in ran.err


def test_an_object_of_a_file(tmp_path):
    (tmp_path / "mine").write_bytes(b"\xef\xbb\xbfcpu_per_job = 4\nimage: an/image:1=a\n")  # with a byte order mark
    made = config.Config(str(tmp_path / "mine"))
    assert (made.cpu_per_job, made.image, made.heartbeat_misses) == (4, "an/image:1=a", 3) and not config.image
    (tmp_path / "mine").write_text("hartbeat = 4\n")
    with pytest.raises(ValueError, match="hartbeat"):
        config.Config(str(tmp_path / "mine"))


def test_workers_share_jobs_by_the_settings():
    config.cpu_per_job = 2
    with fiber.Pool(4) as pool:
        pool.wait_until_workers_up(100)
        pids = [worker["pid"] for worker in pool.workers()]
        jobs = {int(pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[1]) for pid in pids}
        assert len(pids) == 4 and len(jobs) == 2


def test_a_wrong_file_is_named(python, tmp_path):
    (tmp_path / ".fiberconfig").write_text("# mine\nhartbeat = 5s\n")
    ran = python("-c", "import fiber; fiber.init()")
    assert ran.code == 1 and ".fiberconfig:2" in ran.err and "ValueError" in ran.err, ran


def test_a_fifo_in_place_of_the_file_is_ignored(python, tmp_path):
    os.mkfifo(tmp_path / ".fiberconfig")
    ran = python("-c", "import fiber; print(fiber.config.cpu_per_job)")
    assert ran.code == 0 and ran.out == "1\n", ran


def needs_of_a_function(what):
    return fiber.meta.job_of(what)


def test_meta():
    @fiber.meta(cpu=2, memory=100, gpu=1)
    def f():
        pass

    assert needs_of_a_function(f) == {"cpus": 2.0, "memory": 100 << 20, "gpus": 1}
    assert needs_of_a_function(needs_of_a_function) == {}
    from fiber.meta import meta
    assert needs_of_a_function(meta(cpu=1)(lambda: 0)) == {"cpus": 1.0}
    with pytest.raises(TypeError, match="disk"):
        fiber.meta(disk=1)
    with pytest.raises(ValueError):
        fiber.meta(cpu=-1)


@fiber.meta(gpu=1000)
class Simulation(fiber.Process):
    def run(self):
        pass


@fiber.meta(gpu=1000)
class Simulators(fiber.AsyncManager):
    pass


def test_the_needs_of_a_class_are_those_of_its_processes(capfd):
    process = Simulation()
    process.start()
    process.join()
    with pytest.raises(EOFError, match="exit code 125"):
        Simulators().start()
    assert process.exitcode == 125 and capfd.readouterr().err.count("asks for 1000 GPUs") == 2


def test_the_backend():
    assert fiber.backend.get_backend().name == "local"
    assert fiber.backend.get_backend().get_listen_addr() == ("127.0.0.1", 0, "lo")
    fiber.init(backend="docker", bind="127.0.0.1")
    assert fiber.backend.get_backend().name == "docker"
    assert fiber.backend.get_backend().get_listen_addr()[0] == "127.0.0.1"
    with pytest.raises(fiber.ProcessError):
        fiber.backend.get_backend("nothing")


@pytest.mark.parametrize("variables, name", [((), "local"), (("SLURM_JOB_ID",), "local"),
                                             (("SLURM_JOB_ID", "SLURM_JOB_NODELIST"), "slurm"),
                                             (("SLURM_JOB_ID", "SLURM_HET_SIZE"), "slurm")])
def test_the_backend_that_the_place_says(monkeypatch, variables, name):
    """As the library finds it: salloc lists no nodes for an allocation of several parts."""
    for variable in ("KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_HET_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    for variable in variables:
        monkeypatch.setenv(variable, "2")
    assert fiber.backend.auto_select_backend() == name
