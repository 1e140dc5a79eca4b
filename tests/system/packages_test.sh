#!/usr/bin/env bash
# packages_test.sh - what .ci/packages says on a system without apt: every missing tool, library and header, by name.
#
# Its PATH has stand-ins only: a pkg-config, a cc and a clang that have all but what is in MISSING, and empty tools.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

tools=(cmake ninja clang-format llvm-symbolizer g++ readelf pmccabe shellcheck python3 ps ip iptables git groff mandoc)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" || :' EXIT
bin=$scratch/bin
mkdir "$bin"
for tool in bash dirname paste; do ln -s "$(type -P $tool)" "$bin/"; done
for tool in "${tools[@]}"; do ln -s "$(type -P true)" "$bin/$tool"; done
cat >"$bin/pkg-config" <<'END'
#!/usr/bin/env bash
for library in $MISSING; do [[ $2 != "$library"* ]] || exit 1; done
END
cat >"$bin/cc" <<'END'
#!/usr/bin/env bash
read -r line
for name in $MISSING; do [[ "$line $*" != *"$name"* ]] || exit 1; done
END
sed -i "1s|.*|#!$bin/bash|" "$bin/pkg-config" "$bin/cc" # no env there
cp "$bin/cc" "$bin/clang"
chmod +x "$bin"/{pkg-config,cc,clang}

packages() { # packages <what is missing> <group>...: its code in $rc, what it says in $said
    rc=0
    said=$(env -i PATH="$bin" MISSING="$1" "$bin/bash" "$TEST_SOURCE_DIR/.ci/packages" "${@:2}" 2>&1) || rc=$?
}

expect() { # expect <code> <word>...: and these words in what it said
    local word
    for word in "${@:2}"; do
        if [[ $rc != "$1" || $said != *"$word"* ]]; then
            printf 'expected %s and "%s", got %s and:\n%s\n' "$1" "$word" "$rc" "$said"
            exit 1
        fi
    done
}

packages '' build check
expect 0 ''
[ -z "$said" ] || expect 0 'nothing at all'

packages 'utlist.h' build
expect 1 'please install these yourself' 'headers): uthash' 'uthash-dev'
packages 'openssl libuv hwloc' build
expect 1 'headers): libuv OpenSSL-3; and, ' 'without them: hwloc'
packages 'libdw pmix' build
expect 0 'Features are left out that need these: libdw Open-MPI-with-PMIx'
packages 'utlist.h cmocka address' check
expect 1 'headers): cmocka compiler-rt-of-clang' libcmocka-dev
packages 'utlist.h cmocka' cluster
expect 0 ''

for tool in "${tools[@]:2}"; do
    mv "$bin/$tool" "$scratch/"
    packages '' build check
    case $tool in
        llvm-symbolizer) expect 1 'headers): llvm' ;;
        readelf) expect 1 'headers): binutils' ;;
        ps) expect 1 'headers): procps' ;;
        ip) expect 1 'headers): iproute2' ;;
        *) expect 1 "headers): $tool" ;;
    esac
    mv "$scratch/$tool" "$bin/"
done
mv "$bin/cc" "$scratch/"
packages 'utlist.h' build
expect 1 'headers): cc'
