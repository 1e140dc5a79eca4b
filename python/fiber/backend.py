"""backend.py - the backend that starts jobs.

SPDX-License-Identifier: Apache-2.0
"""
import fcntl
import os
import socket

__all__ = ["available_backend", "auto_select_backend", "get_backend", "Backend"]

available_backend = ["local", "docker", "kubernetes", "slurm", "command"]
SIOCGIFADDR = 0x8915  # of netdevice(7)
IN_A_POD = "/var/run/secrets/kubernetes.io/serviceaccount/token"


class Backend:
    """A backend by its name."""

    def __init__(self, name):
        self.name = name

    def get_listen_addr(self):
        """Returns (address, port, interface) at which jobs of this backend dial the program.

        The port is 0: it is chosen when something is opened. The interface is None where no one has the address.
        """
        from . import config
        bind = config.bind
        if bind:
            return bind, 0, _interface_of(bind)
        address = "127.0.0.1" if self.name == "local" else _address_toward_others()
        return address, 0, _interface_of(address)

    def __repr__(self):
        return "<fiber backend %s>" % self.name


def _address_toward_others():
    """The address from which this host would speak to others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            return s.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def _interface_of(address):
    """The network interface that has this address of IPv4, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            try:
                about = fcntl.ioctl(s, SIOCGIFADDR, name.encode().ljust(40, b"\0"))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(about[20:24]) == address:
                return name
    return None


def auto_select_backend():
    """Returns the backend that the place of this program says: a pod, an allocation of Slurm, else this machine."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") and os.access(IN_A_POD, os.R_OK):
        return "kubernetes"
    if os.environ.get("SLURM_JOB_ID") and {"SLURM_JOB_NODELIST", "SLURM_HET_SIZE"} & os.environ.keys():
        return "slurm"
    return "local"


def get_backend(name=None):
    """Returns a backend; without a name the one that is configured."""
    from . import config
    if name is None:
        name = config.backend
        if name == "auto":
            name = auto_select_backend()
    elif name not in available_backend:
        from multiprocessing.context import ProcessError
        raise ProcessError("Invalid backend: %s" % name)
    return Backend(name)
