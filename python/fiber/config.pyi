# config.pyi - types of the settings; durations and sizes are texts such as "500ms" and "64Mi".
from types import SimpleNamespace
from typing import Any

LIBRARY: tuple[str, ...]
FRONT: dict[str, Any]

backend: str
transport: str
log_level: str | int
heartbeat: str
heartbeat_misses: int
start_timeout: str
start_patience: str
template: bool
gang_timeout: str
join_timeout: str
grace: str
linger: str
retries: int
tag_output: bool
run_dir: str
log_dir: str
log_keep: str
log_total: str
bind: str
command_file: str
command_start: str
command_hosts: str
command_program: str
image: str
image_add: str
docker_host: str
docker_network: str
docker_user: str
docker_mounts: str
docker_caps: str
docker_shm: str
docker_pids: int
docker_template: str
slurm_mode: str
slurm_partition: str
slurm_account: str
slurm_qos: str
slurm_constraint: str
slurm_time: str
slurm_options: str
slurm_dir: str
slurm_poll: str
kubernetes_context: str
kubernetes_namespace: str
kubernetes_pod_template: str
kubernetes_program: str
kubernetes_agent_image: str
kubernetes_pull_policy: str
kubernetes_service_account: str
kubernetes_master_account: str
kubernetes_user: int
kubernetes_gpu_resource: str
kubernetes_follow_logs: int
kubernetes_pull_timeout: str
kubernetes_pending_timeout: str
kubernetes_rate: int
kubernetes_burst: int
max_message: str
hold_max: str
cpu_per_job: int
mem_per_job: int | None
default_backend: str | None
default_image: str | None
debug: bool
merge_output: bool
log_file: str | None
use_bash: bool
use_push_queue: bool
ipc_active: bool
ipc_admin_master_port: int
ipc_admin_worker_port: int

class Config(SimpleNamespace):
    def __init__(self, conf_file: str | None = None) -> None: ...
    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Config: ...

def get_dict() -> dict[str, Any]: ...
def get_object() -> Config: ...
def init(**settings: Any) -> list[str]: ...
def reset() -> None: ...
