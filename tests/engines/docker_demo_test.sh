# docker_demo_test.sh - ./demo --backend docker on a Docker engine: ranks and workers are containers.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/demo.sh
engine=docker
. "$(dirname "$0")/demo.sh"
demo '[0-9a-f]{12}'
