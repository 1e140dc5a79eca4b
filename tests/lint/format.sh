# format.sh - all C is as clang-format leaves it.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "${TEST_SOURCE_DIR:?}"

if ! command -v clang-format >/dev/null; then
    echo "clang-format is missing"
    exit 77
fi
files=()
while IFS= read -r -d '' file; do files+=("$file"); done < <(
    find include runtime share pool ring mpi_bridge backends cli python examples benchmarks tests -name '*.[ch]' -print0)
clang-format --dry-run -Werror "${files[@]}" 2>/dev/null && exit 0 # one call: it starts slowly
for file in "${files[@]}"; do
    clang-format "$file" | diff -u --label "$file" --label formatted "$file" - | head -20 || true
done
echo "run clang-format -i on these files"
exit 1
