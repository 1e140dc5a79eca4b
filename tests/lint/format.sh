# format.sh - all C is as clang-format leaves it.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "${TEST_SOURCE_DIR:?}"

if ! command -v clang-format >/dev/null; then
    echo "clang-format is missing"
    exit 77
fi
bad=0
while IFS= read -r -d '' file; do
    if ! clang-format --dry-run -Werror "$file" 2>/dev/null; then
        echo "$file: run clang-format -i $file"
        clang-format "$file" | diff -u --label "$file" --label formatted "$file" - | head -20 || true
        bad=1
    fi
done < <(find include runtime share pool ring mpi_bridge backends cli python examples benchmarks tests -name '*.[ch]' -print0)
exit $bad
