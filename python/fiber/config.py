"""config.py - settings, as attributes of this module.

    import fiber.config
    fiber.config.backend = "docker"             # the same as fiber.init(backend="docker")
    print(fiber.config.heartbeat)

A setting comes from the program, else from the environment (FIBER_BACKEND=docker), else from ./.fiberconfig and the other
files of fiber.conf(5). LIBRARY has the names of that page. FRONT has settings of Fiber 0.2 that the library does not know:
they come from the program, the environment, or ./.fiberconfig. A value counts for what is started after it was set; None gives a
setting back the value that it had when the program began.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import sys
from types import ModuleType, SimpleNamespace

__all__ = ["Config", "get_dict", "get_object", "init", "reset"]

LIBRARY = tuple("""
    backend transport log_level heartbeat heartbeat_misses start_timeout start_patience gang_timeout join_timeout grace
    linger retries tag_output run_dir log_dir log_keep log_total bind command_file command_start command_hosts
    command_program image image_add docker_host docker_network docker_user docker_mounts docker_caps docker_shm docker_pids
    docker_template slurm_mode slurm_partition slurm_account slurm_qos slurm_constraint slurm_time slurm_options slurm_dir
    slurm_poll kubernetes_context kubernetes_namespace kubernetes_pod_template kubernetes_program kubernetes_agent_image
    kubernetes_pull_policy kubernetes_service_account kubernetes_master_account kubernetes_user kubernetes_gpu_resource
    kubernetes_follow_logs kubernetes_pull_timeout kubernetes_pending_timeout kubernetes_rate kubernetes_burst max_message
    hold_max template
""".split())

FRONT = {
    "cpu_per_job": 1,  # how many workers of a pool share a job
    "mem_per_job": None,  # MiB that a job asks for
    "default_backend": None,  # the backend where neither a setting nor the place says one
    "default_image": None,  # the image where `image` names none
    "debug": False,  # True: log_level = debug
    "merge_output": True,  # what jobs print always comes here
    "log_file": None,  # the library writes its lines to standard error
    "use_bash": False,
    "use_push_queue": True,
    "ipc_active": True,  # jobs dial their parent
    "ipc_admin_master_port": 0,
    "ipc_admin_worker_port": 0,
}

NUMBERS = ("cpu_per_job", "mem_per_job")

LEVELS = {"warning": "warn", "critical": "error", "fatal": "error", "notset": "trace",
          10: "debug", 20: "info", 30: "warn", 40: "error", 50: "error", 0: "trace"}

_front = {}  # what was set of FRONT
_environment = {}  # settings of the library in the environment, as they were last read
_before = {}  # what settings of the library were before the program set them


def get_dict():
    """Returns all settings as a dictionary."""
    return {key: _get(key) for key in (*LIBRARY, *FRONT)}


class Config(SimpleNamespace):
    """All settings as they are when it is made, as attributes; those of a file in the place of the current ones."""

    def __init__(self, conf_file=None):
        super().__init__(**get_dict())
        if conf_file is not None:
            for key, value in _read(conf_file).items():
                if key not in LIBRARY and key not in FRONT:
                    raise ValueError("there is no setting %r (in %s)" % (key, conf_file))
                setattr(self, key, _value_of(value))

    @classmethod
    def from_dict(cls, settings):
        """Returns an object with these settings in the place of the current ones."""
        config = cls()
        vars(config).update(settings)
        return config


def get_object():
    """Returns all settings as an object with attributes."""
    return Config()


def init(**settings):
    """Joins this process to Fiber and sets these settings; returns the names of those that changed.

    A variable of the environment that changed since the last call counts as one of these settings.
    """
    from . import _core
    for key in settings:
        if key not in LIBRARY and key not in FRONT:
            raise ValueError("there is no setting %r" % key)
    _core.start()
    changed = []
    for key, value in {**_changed_variables(), **settings}.items():
        before = _get(key)
        _set(key, value)
        if _get(key) != before:
            changed.append(key)
    return changed


def _changed_variables():
    """Returns the settings of the library that the environment has otherwise than when it was read."""
    before = dict(_environment)
    _read_environment()
    return {key: _environment.get(key) for key in before.keys() | _environment if before.get(key) != _environment.get(key)}


def _read_environment():
    _environment.clear()
    _environment.update((key, os.environ[name]) for key in LIBRARY for name in ["FIBER_" + key.upper()] if name in os.environ)


def reset():
    """Gives every setting back the value that it had when the program began."""
    _front.clear()
    for key in list(_before):
        _set(key, None)


def _get(key):
    if key in FRONT:
        return _front[key] if key in _front else _from_environment(key)
    if key not in LIBRARY:
        raise AttributeError("there is no setting %r" % key)
    from . import _core
    return _value_of(_core.start().config_get(key))


def _from_environment(key):
    """A setting of the front that the program has not set: from the environment, else the file."""
    text = os.environ.get("FIBER_" + key.upper()) or _file().get(key)
    return _value_of(text) if text else FRONT[key]


FILE = ".fiberconfig"
_files = {}  # path -> settings of the front; read once, as the library reads its own


def _file():
    path = os.path.abspath(FILE)
    if path not in _files:
        _files[path] = {key: value for key, value in _read(path).items() if key in FRONT}
    return _files[path]


def _read(path):
    """Returns the pairs of a file of settings. The library has said what is wrong with the one that it reads."""
    pairs = {}
    try:
        about = os.stat(path)
        if about.st_uid not in (os.geteuid(), 0) or about.st_mode & 0o002 or not os.path.isfile(path):
            return pairs  # the library passes it over, too
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            for line in file:
                pair = re.match(r"\s*([^\s#;[=:][^=:]*?)\s*[=:](.*)", line)
                if pair:
                    pairs[pair[1]] = re.split(r"\s[;#]", pair[2])[0].strip()
    except OSError:
        pass
    return pairs


def _value_of(text):
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return text


def _text_of(key, value):
    if key == "log_level":
        value = LEVELS.get(value.lower() if isinstance(value, str) else value, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, list, tuple, set, dict)):  # whose text says something else
        raise TypeError("%s is a text or a number, and not %r" % (key, value))
    return str(value)


def _check_number(key, value):
    try:
        good = int(value) >= 0
    except (OverflowError, TypeError, ValueError):
        good = False
    if not good:
        raise ValueError("%s is %r, which is not a number from 0 on" % (key, value))


def _set(key, value):
    from multiprocessing.context import ProcessError

    from . import _core
    if key in FRONT:
        if key in NUMBERS and value is not None:
            _check_number(key, value)
        _front[key] = FRONT[key] if value is None else value
        _translate(key, _front[key])
        return
    if key not in LIBRARY:
        raise ValueError("there is no setting %r" % key)
    core = _core.start()
    before = _before.setdefault(key, core.config_get(key))
    try:
        core.config_set(key, before if value is None else _text_of(key, value))
        if key == "backend":
            _core.prepare_image()
    except ValueError as error:
        if key == "backend":  # as Fiber 0.2 has it
            raise ProcessError("Invalid backend: %s (%s)" % (value, error)) from None
        raise


def _translate(key, value):
    """A setting of Fiber 0.2 that says something to the library."""
    if key == "debug" and value:
        _set("log_level", "debug")
    elif key == "default_backend" and value and _get("backend") == "auto":
        from .backend import auto_select_backend
        if auto_select_backend() == "local":
            _set("backend", value)
    elif key == "default_image" and value and not _get("image"):
        _set("image", value)


def travelling():
    """Returns what a child needs to have the same settings of the front; the library's travel with it."""
    return dict(_front)


def adopt(settings):
    """In a child: takes over what travelling() returned in the parent."""
    _front.update(settings)


class without_foreign_variables:
    """Takes the settings of the front out of the environment for a while.

    The library, which reads its own settings there as it starts, refuses names that it does not know.
    """

    def __enter__(self):
        names = ["FIBER_" + key.upper() for key in FRONT] + ["FIBER_PYTHON"]
        self.taken = {name: os.environ.pop(name) for name in names if name in os.environ}

    def __exit__(self, *error):
        os.environ.update(self.taken)


def apply():
    """After the start of the library: says to it what the environment says in terms of Fiber 0.2."""
    _read_environment()
    for key in ("debug", "default_backend", "default_image"):
        value = _from_environment(key)
        if value != FRONT[key]:
            _translate(key, value)


class _Settings(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError("module %r has no attribute %r" % (__name__, name))
        return _get(name)

    def __setattr__(self, name, value):
        if name in FRONT or name in LIBRARY:
            _set(name, value)
        elif name in self.__dict__ or name.startswith("_"):
            super().__setattr__(name, value)
        else:
            raise AttributeError("there is no setting %r" % name)

    def __dir__(self):
        return sorted((*super().__dir__(), *FRONT, *LIBRARY))


sys.modules[__name__].__class__ = _Settings
