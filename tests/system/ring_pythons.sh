# ring_pythons.sh - which Pythons the tests of torch, Horovod and JAX run with; they source it after ring_lib.sh.
#
# Looked through are those that TEST_PYTHON names (a list with colons), Debian's, the first on the PATH, and what
# tests/beds/python makes. Every version of a module is tested once.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
pythons_with() { # pythons_with <module>: an interpreter on each line
    local p path version given seen=' '
    IFS=: read -ra given <<<"${TEST_PYTHON:-}"
    for p in "${given[@]}" /usr/bin/python3 python3 "${XDG_CACHE_HOME:-${HOME:-/var/cache}/.cache}"/fiber/beds/python/*/bin/python3; do
        path=$(command -v "$p") || continue
        [[ $seen != *" $path "* ]] || continue # looking takes a second and more
        seen+="$path "
        version=$("$p" -c "import $1; print(${1%%.*}.__version__)" 2>/dev/null) || continue
        [[ $seen != *" $version "* ]] || continue
        seen+="$version "
        echo "$1 $version: $p" >&2
        echo "$p"
    done
}
