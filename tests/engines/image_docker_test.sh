# image_docker_test.sh - images that `fiber image` makes run on a real engine: a pool with its workers, a ring of Open MPI,
# under another user, without a network; made once they are the same again; and containerd takes them too.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fiber=${TEST_BINARY_DIR:?}/cli/fiber
bed=${TEST_SOURCE_DIR:?}/tests/beds/docker/bed
command -v docker >/dev/null || { echo "there is no docker command here"; exit 77; }
[ -e "$TEST_BINARY_DIR/fiber/cluster.so" ] || { echo "this build has no images: a library is missing"; exit 77; }
"$bed" try
eval "$("$bed" env)"
socket=${DOCKER_HOST#unix://}
work=$(mktemp -d)
images=()
finish() {
    docker rmi -f "${images[@]}" >/dev/null 2>&1 || :
    rmdir /sys/fs/cgroup/{,*/}fiber-image-test 2>/dev/null || : # containerd leaves the group of its namespace
    rm -rf "$work"
}
trap finish EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run
cd "$work"
bad=0

complain() {
    echo "$*"
    bad=1
}

build() { # build <name> <argument>...
    images+=("$1")
    "$fiber" image build "$@" || complain "$1 could not be built"
}

in_image() { # in_image <pattern of what is said> <argument of docker run>...
    local pattern=$1 code=0
    shift
    timeout 300 docker run --rm --network none "$@" >said 2>&1 || code=$?
    if [ $code != 0 ] || ! [[ $(<said) =~ $pattern ]]; then
        complain "docker run $*: code $code, said:"
        head -50 said
    fi
}

pool=$TEST_BINARY_DIR/examples/hello_pool
if [ -x "$pool" ]; then
    build fiber-image-test-pool:1 "$pool"
    in_image '.' fiber-image-test-pool:1
    in_image '.' -u 4321:4321 --cap-drop ALL --security-opt no-new-privileges fiber-image-test-pool:1 "$pool"
    in_image '^fiber [0-9.]+' fiber-image-test-pool:1 fiber version
    one=$(docker image inspect -f '{{.Id}}' fiber-image-test-pool:1)
    build fiber-image-test-pool:2 "$pool"
    [ "$one" = "$(docker image inspect -f '{{.Id}}' fiber-image-test-pool:2)" ] || complain "the same files gave another image"
fi

mpi=$TEST_BINARY_DIR/examples/mpi/mpi_hello
if [ -x "$mpi" ]; then
    build fiber-image-test-mpi:1 "$mpi"
    in_image 'the ranks add up to 6' --cap-add SYS_PTRACE fiber-image-test-mpi:1 fiber run -n 4 --bind-to none "$mpi"
    in_image 'the ranks add up to 1' -u 4321:4321 fiber-image-test-mpi:1 fiber run -n 2 --bind-to none "$mpi"
fi

# Another MPI in the image than here, where Open MPI is: its ranks are started by the same launcher and agents. In two
# containers they send nothing: MPICH 4.0 on UCX may hang in MPI_Finalize then (hosts_ring_test.sh).
if command -v mpicc.mpich >/dev/null && [ -x "$mpi" ]; then
    mpicc.mpich -O1 -o hello_mpich "$TEST_SOURCE_DIR/examples/mpi/mpi_hello.c"
    mpicc.mpich -O1 -o meet_mpich "$TEST_SOURCE_DIR/tests/engines/hosts_mpi.c"
    grep -q libmpich <<<"$(ldd hello_mpich)" || complain "that is not MPICH"
    build fiber-image-test-mpich:1 "$work/hello_mpich" "$work/meet_mpich"
    build fiber-image-test-mpich:bare "$work/hello_mpich" "$work/meet_mpich" --bare --bare # the agent is put in
    in_image 'the ranks add up to 6' --cap-add SYS_PTRACE fiber-image-test-mpich:1 fiber run -n 4 --bind-to none "$work/hello_mpich"
    ranks() { # ranks <image> <ranks in each container> <text> <program>
        FIBER_BACKEND=docker FIBER_START_TIMEOUT=300s timeout 300 "$fiber" run --image "fiber-image-test-$1" -n 4 --per-node "$2" \
            --oversubscribe --bind-to none "$4" >said 2>&1 || complain "fiber run in $1, $2 in each: code $?"
        [[ $(<said) == *"$3"* ]] || { complain "fiber run in $1, $2 in each, said:"; head -50 said; }
    }
    for image in mpich:1 mpich:bare; do
        ranks $image 4 'the ranks add up to 6' "$work/hello_mpich"
        ranks $image 2 'MPI rank 3 of 4' "$work/meet_mpich"
    done
fi

# a script, its interpreter, its data, its variables and where it stands
# shellcheck disable=SC2016
printf '#!/usr/bin/env -S sh -u\nread -r text <data\necho "$text $WORD $PWD"\n' >script
chmod +x script
echo text >data
build fiber-image-test-script:1 ./script -a data -e WORD=word --workdir "$work"
in_image "^text word $work\$" fiber-image-test-script:1

containerd=$(dirname "$socket")/exec/containerd/containerd.sock
if command -v ctr >/dev/null && [ -S "$containerd" ]; then
    "$fiber" image export fiber-image-test-ctr:1 "$fiber" -o image.tar -q
    ctr -a "$containerd" -n fiber-image-test images import image.tar
    timeout 300 ctr -a "$containerd" -n fiber-image-test run --rm docker.io/library/fiber-image-test-ctr:1 t1 fiber version \
        >said 2>&1 || complain "containerd does not run it: $(<said)"
    ctr -a "$containerd" -n fiber-image-test images rm docker.io/library/fiber-image-test-ctr:1 >/dev/null
fi
exit $bad
