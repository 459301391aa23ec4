#!/usr/bin/env bash
# Each kernel once, at small shapes, under NVIDIA's four checkers, side by side. Leaves a log for each
# in $OUT, and fails where one of them found anything.
# usage: tools/h200/sanitize.sh [options of one_of_each.py]
source "$(dirname "$0")/setup.sh"
tools=(memcheck racecheck initcheck synccheck)
declare -A started
# The plain run says what runs at all, and fills the driver's cache of compiled modules.
python3 tools/h200/one_of_each.py "$@" >"$OUT/plain.log" 2>&1 || echo "plain run: exit $?"
tail -n 4 "$OUT/plain.log"
for tool in "${tools[@]}"; do
  timeout "${LIMIT_S:-110}" compute-sanitizer --tool "$tool" --print-limit 30 --error-exitcode 9 \
    python3 tools/h200/one_of_each.py "$@" >"$OUT/$tool.log" 2>&1 &
  started[$tool]=$!
done
worst=0
for tool in "${tools[@]}"; do
  status=0
  wait "${started[$tool]}" || status=$?
  echo "$tool: exit $status; $(grep -a 'SUMMARY' "$OUT/$tool.log" | tail -n 1)" \
    "$(grep -a '^ran ' "$OUT/$tool.log" | tail -n 1)"
  # What was found, by kernel, most frequent first.
  grep -aE '========= (Invalid|Error|Warning|Uninitialized|Barrier|Program hit|Potential|Race)' \
    "$OUT/$tool.log" | sort | uniq -c | sort -rn | head -n 6 || true
  grep -aoE '(at|in) [a-z0-9_]+(\+0x[0-9a-f]+|\()' "$OUT/$tool.log" | sed 's/[+(].*//' | sort |
    uniq -c | sort -rn | head -n 8 || true
  [ "$status" = 0 ] || worst=1
done
exit "$worst"
