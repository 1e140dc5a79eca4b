# header.sh - fiber.h alone compiles as C11 and as C++17, strictly; every other header compiles alone too.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "${TEST_SOURCE_DIR:?}" || exit 2

strict=(-Wall -Wextra -Werror -pedantic -fsyntax-only)
bad=0
tried=0

compile() { # compile <header> <compiler> <flag>...
    local header=$1
    shift
    command -v "$1" >/dev/null || return 0
    tried=$((tried + 1))
    if ! printf '#include "%s"\n' "$header" | "$@" -; then
        echo "$header: does not compile alone: $*"
        bad=1
    fi
}

for cc in gcc clang; do
    compile fiber.h "$cc" -std=c11 "${strict[@]}" -Iinclude -xc
    compile fiber.h "$cc" -std=c++17 "${strict[@]}" -Iinclude -xc++
done
read -ra more <<<"$(pkg-config --cflags pmix hwloc 2>/dev/null || true)"
while read -r header; do
    if [[ $header == *pmix* && ${#more[@]} -eq 0 ]]; then
        continue # its library is not here
    fi
    compile "$header" "${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -I. -Iinclude \
        "${more[@]}" -xc
done < <(find runtime share pool ring mpi_bridge backends cli -name '*.h')

echo "$tried compilations"
[ "$tried" -gt 0 ] && exit $bad
