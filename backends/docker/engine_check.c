/* engine_check.c - the checks of a Docker engine for `fiber doctor`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/engine_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LOOK_MS 10000

/* ---- The engine ---- */

static void check_engine(struct fbr_docker_engine *e, const struct fbr_findings *to)
{
    struct fbr_error err = {0, ""};
    struct json_t *v = fbr_docker_engine_get(e, "/version", NULL, &err);
    const char *platform =
        fbr_json_text(fbr_json_item(fbr_json_at(v, "Components", NULL), 0), "Name", NULL);

    if (!v)
        fbr_report(to, FBR_FINDING_BAD, "engine", "systemctl restart docker", "%s", err.text);
    else
        fbr_report(to, FBR_FINDING_GOOD, "engine", "", "%s: %s %s, API %s of %s to %s", e->name,
                   strstr(platform, "Podman") ? "Podman" : "Docker", e->version, e->api,
                   fbr_json_text(v, "MinAPIVersion", NULL), fbr_json_text(v, "ApiVersion", NULL));
    fbr_json_free(v);
}

bool fbr_docker_has_option(const struct json_t *info, const char *option)
{
    const struct json_t *list = fbr_json_at(info, "SecurityOptions", NULL);

    for (size_t i = 0; i < fbr_json_count(list); i++)
        if (strstr(fbr_json_text(fbr_json_item(list, i), NULL), option))
            return true;
    return false;
}

static void check_limits(const struct json_t *info, const struct fbr_findings *to)
{
    const char *driver = fbr_json_text(info, "CgroupDriver", NULL),
               *version = fbr_json_text(info, "CgroupVersion", NULL);
    bool memory = fbr_json_bool(info, "MemoryLimit", NULL),
         cpus = fbr_json_bool(info, "CpuCfsQuota", NULL);

    if (memory && cpus)
        fbr_report(to, FBR_FINDING_GOOD, "limits", "", "memory and processors, by cgroup v%s (%s)",
                   version[0] ? version : "1", driver);
    else
        fbr_report(
            to, FBR_FINDING_BAD, "limits",
            "delegate the controllers memory and cpu to the engine; rootless: Delegate=cpu memory "
            "pids in user@.service.d",
            "the engine cannot limit %s%s%s: --mem and --cpus-per-rank are refused, or change "
            "nothing",
            memory ? "" : "memory", memory || cpus ? "" : " and ", cpus ? "" : "processors");
}

static bool has_runtime(const struct json_t *info)
{
    return fbr_json_at(info, "Runtimes", "nvidia", NULL) ||
           strcmp(fbr_json_text(info, "DefaultRuntime", NULL), "nvidia") == 0 ||
           fbr_json_count(fbr_json_at(info, "DiscoveredDevices", NULL)) > 0;
}

static void check_gpus(const struct json_t *info, bool gpus, const struct fbr_findings *to)
{
    if (has_runtime(info))
        fbr_report(to, FBR_FINDING_GOOD, "GPUs", "", "the engine has NVIDIA's runtime");
    else if (gpus)
        fbr_report(
            to, FBR_FINDING_BAD, "GPUs",
            "apt install nvidia-container-toolkit && nvidia-ctk runtime configure "
            "--runtime=docker && systemctl restart docker",
            "there are GPUs, but containers cannot have them: the engine lacks NVIDIA's runtime");
    else
        fbr_report(to, FBR_FINDING_ABSENT, "GPUs", "", "the engine has no runtime for them");
}

static void check_kind(const struct json_t *info, const char *machine,
                       const struct fbr_findings *to)
{
    const char *theirs = fbr_json_text(info, "Architecture", NULL),
               *system = fbr_json_text(info, "OperatingSystem", NULL);
    bool other = theirs[0] && strcmp(theirs, machine) != 0 &&
                 !(strcmp(theirs, "amd64") == 0 && strcmp(machine, "x86_64") == 0) &&
                 !(strcmp(theirs, "arm64") == 0 && strcmp(machine, "aarch64") == 0);

    if (other)
        fbr_report(
            to, FBR_FINDING_BAD, "machine",
            "name an image of that architecture (FIBER_IMAGE), with the program built for it",
            "the engine's is %s, this one is %s: programs from here do not run there", theirs,
            machine);
    else
        fbr_report(to, FBR_FINDING_GOOD, "machine", "", "%lld processors, %.1f GiB, %s%s%s",
                   (long long)fbr_json_int(info, 0, "NCPU", NULL),
                   (double)fbr_json_int(info, 0, "MemTotal", NULL) / (1 << 30),
                   system[0] ? system : "unknown system",
                   fbr_docker_has_option(info, "rootless") ? "; rootless" : "",
                   fbr_docker_has_option(info, "userns")
                       ? "; users are mapped, so mounts belong to other users there"
                       : "");
}

void fbr_docker_check_info(const struct json_t *info, bool gpus, const char *machine,
                           const struct fbr_findings *to)
{
    check_kind(info, machine, to);
    check_limits(info, to);
    check_gpus(info, gpus, to);
}

/* ---- The image ---- */

static bool is_on_engine(struct fbr_docker_engine *e, const char *image, int *status)
{
    char *escaped = fbr_http_escape(image), *path = NULL;
    struct json_t *j;

    if (escaped)
        path = fbr_docker_path(e, "/images/%s/json", escaped);
    free(escaped);
    j = fbr_docker_engine_ask(e, "GET", path, LOOK_MS, status, NULL);
    fbr_json_free(j);
    return j != NULL;
}

static void check_image(struct fbr_docker_engine *e, struct fbr_docker_images *images,
                        const struct fbr_config *config, const struct fbr_findings *to)
{
    const char *named = fbr_config_str(config, "image");
    struct fbr_error err = {0, ""};
    char image[256], mend[300];
    int status = 0;

    if (fbr_docker_images_choose(images, NULL, image, sizeof(image), &err) < 0) {
        fbr_report(to, FBR_FINDING_BAD, "image",
                   "set image (FIBER_IMAGE) to one that has the program", "%s", err.text);
        return;
    }
    snprintf(mend, sizeof(mend), "docker pull %.250s", image);
    if (!named[0] && !e->own_image[0])
        fbr_report(to, FBR_FINDING_GOOD, "image", "", "none is set: one is made from each program");
    else if (is_on_engine(e, image, &status))
        fbr_report(to, FBR_FINDING_GOOD, "image", "", "%s is there%s", image,
                   named[0] ? "" : ", the image that this process runs in");
    else if (status == 404)
        fbr_report(to, FBR_FINDING_ABSENT, "image", mend,
                   "%s is not on the engine: it is pulled when it is first needed", image);
    else
        fbr_report(to, FBR_FINDING_BAD, "image", mend, "%s: the engine answers %d", image, status);
}

/* ---- The way back ---- */

static void check_network(struct fbr_docker_engine *e, const struct fbr_config *config,
                          const struct fbr_findings *to)
{
    const char *network = fbr_config_str(config, "docker_network"), *gateway;
    char address[FBR_HOST_ADDRESS_MAX];
    struct fbr_error err = {0, ""};
    struct json_t *j;

    if (!network[0])
        network = e->own_network[0] ? e->own_network : "bridge";
    if (strcmp(network, "host") == 0 || strcmp(network, "none") == 0 || e->own_address[0])
        return; /* docker_address() reports the error */
    j = fbr_docker_engine_get(e, "/networks/%s", network, &err);
    gateway =
        fbr_json_text(fbr_json_item(fbr_json_at(j, "IPAM", "Config", NULL), 0), "Gateway", NULL);
    if (!j)
        fbr_report(to, FBR_FINDING_BAD, "network",
                   "docker network ls, and set docker_network to one", "%s", err.text);
    else if (e->host[0] || (gateway[0] && fbr_host_address_find(gateway, address) == 0))
        fbr_report(to, FBR_FINDING_GOOD, "network", "", "%s, gateway %s", network, gateway);
    else
        fbr_report(
            to, FBR_FINDING_GOOD, "network", "",
            "%s; the engine is rootless, or in a machine of its own: only a running container "
            "shows whether containers reach this host; if not, set bind (FIBER_BIND) to another "
            "address of this host, or docker_network = host",
            network);
    fbr_json_free(j);
}

void fbr_docker_check(struct fbr_docker_engine *e, struct fbr_docker_images *images,
                      const struct fbr_config *config, const struct fbr_findings *to)
{
    struct fbr_error err = {0, ""};
    struct json_t *info;
    struct utsname machine;

    check_engine(e, to);
    info = fbr_docker_engine_get(e, "/info", NULL, &err);
    memset(&machine, 0, sizeof(machine));
    uname(&machine);
    if (info)
        fbr_docker_check_info(info, !e->host[0] && access("/dev/nvidiactl", F_OK) == 0,
                              machine.machine, to);
    else
        fbr_report(to, FBR_FINDING_BAD, "machine", "", "%s", err.text);
    fbr_json_free(info);
    check_image(e, images, config, to);
    check_network(e, config, to);
}
