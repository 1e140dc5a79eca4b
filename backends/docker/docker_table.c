/* docker_table.c - the facts about the backend docker that are known before its module is loaded.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "runtime/proc/backend.h"

static const struct fbr_config_key keys[] = {
    {"docker_host", "FIBER_DOCKER_HOST", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "the engine: unix:///path or tcp://host:port; empty: DOCKER_HOST, else docker's context, "
     "else the usual socket"},
    {"docker_network", "FIBER_DOCKER_NETWORK", FBR_CONFIG_STR, "", 0, 250, NULL,
     "network of containers; empty: that of the container that this process is in, else the "
     "engine's default"},
    {"docker_user", "FIBER_DOCKER_USER", FBR_CONFIG_STR, "", 0, 64, NULL,
     "user in containers, as uid:gid or a name in the image; empty: the image's user, or the "
     "current user if the image is made from the program"},
    {"docker_mounts", "FIBER_DOCKER_MOUNTS", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "folders of the host that containers see, e.g. \"/data:/data:ro /scratch:/scratch\""},
    {"docker_caps", "FIBER_DOCKER_CAPS", FBR_CONFIG_STR, "SYS_PTRACE", 0, 256, NULL,
     "capabilities of containers, or none; all others are dropped. SYS_PTRACE lets ranks copy "
     "memory directly"},
    {"docker_shm", "FIBER_DOCKER_SHM", FBR_CONFIG_SIZE, "1Gi", 64 * FBR_KIB, 1024 * FBR_GIB, NULL,
     "size of /dev/shm in containers, which ranks of one host use for messages"},
    {"docker_pids", "FIBER_DOCKER_PIDS", FBR_CONFIG_INT, "32768", 0, 4194304, NULL,
     "most processes and threads of a container; 0: as many as the engine allows"},
    {"docker_template", "FIBER_DOCKER_TEMPLATE", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "JSON file merged into the body that creates a container (RFC 7396), for all other settings"},
};

static const struct fbr_backend_sign signs[] = {
    {"DOCKER_HOST", "docker_host", "/var/run/docker.sock"},
    {"DOCKER_CONTEXT", NULL, NULL},
};

static const struct fbr_backend_advice advice = {
    .absent = "apt install docker.io, or set DOCKER_HOST; in a container: -v "
              "/var/run/docker.sock:/var/run/docker.sock",
    .bad = "systemctl restart docker; it has to be version 19.03 or later",
    .setting = "correct this setting; fiber config show prints where it is set, unless it is "
               "DOCKER_HOST, or docker's context (docker context ls)",
    .keys = "put that engine's ca.pem, and a cert.pem and key.pem that it accepts, into a folder "
            "DIR; then export DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=DIR",
    .may = "usermod -aG docker $USER, and log in again",
};

static void remove_command(const struct fbr_config *config, const char *id, char *out, size_t size)
{
    snprintf(out, size, "docker rm -f %.12s", id);
}

static const struct fbr_backend_about about = {
    .keys = keys,
    .nkeys = sizeof(keys) / sizeof(keys[0]),
    .signs = signs,
    .nsigns = sizeof(signs) / sizeof(signs[0]),
    .advice = &advice,
    .remove_command = remove_command,
    .leaves_jobs = 1,
    .missing = "127 is what a shell says when it does not find a program: FIBER_IMAGE_ADD=PROGRAM "
               "puts one into an image that is made here.",
    .contained = 1,
    .in_images = 1,
    .makes_images = 1,
};

extern const struct fbr_backend_ops fbr_backend_docker;
const struct fbr_backend_ops fbr_backend_docker = {
    .name = "docker", .about = &about, .reach = FBR_REACH_TCP};
