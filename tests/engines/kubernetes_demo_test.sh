# kubernetes_demo_test.sh - ./demo --backend kubernetes on a cluster that is there: ranks and workers are pods, of an image that
# `fiber image export` makes. The bed's only node is this machine, so a directory of it is the volume that all see.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/demo.sh
engine=kubernetes
. "$(dirname "$0")/demo.sh"
"$TEST_BINARY_DIR/cli/fiber" image export fiber-demo:1 -q -o "$work/image.tar" "$TEST_BINARY_DIR/examples/mixed" \
    "$TEST_BINARY_DIR/examples/mpi/sgd_ring"
"$bed" import fiber-demo:1 "$work/image.tar" >/dev/null
rm "$work/image.tar"
data=$TEST_SOURCE_DIR/examples/data
cat >"$work/pod.yaml" <<END
spec:
  containers:
  - name: fiber
    volumeMounts:
    - {name: work, mountPath: $work}
    - {name: data, mountPath: $data, readOnly: true}
  volumes:
  - {name: work, hostPath: {path: $work}}
  - {name: data, hostPath: {path: $data}}
END
export FIBER_IMAGE=fiber-demo:1 FIBER_KUBERNETES_PULL_POLICY=Never FIBER_KUBERNETES_POD_TEMPLATE=$work/pod.yaml
demo 'fiber-[0-9a-f]+-agent-[0-9]+'
