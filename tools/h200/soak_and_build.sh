#!/usr/bin/env bash
# The first of two calls on one machine: all that takes long and may run side by side. A soak of ten
# minutes runs on past its end, and measure.sh waits for it; meanwhile llama.cpp is built, the models
# are made, and the checks run. Logs go to $OUT/checks.tar.xz, llama.cpp to $OUT/peer.xz.*.
# usage: tools/h200/soak_and_build.sh   (LIMIT_S: its own time, 580; MINUTES: the soak's, 10)
source "$(dirname "$0")/setup.sh"
limit_s="${LIMIT_S:-580}" logs="$scratch/checks"
rm -rf "$logs"
mkdir -p "$logs/tests" "$logs/sanitizers" "$scratch/peer"

# NAME COMMAND...: its output into $logs/NAME.log, its end into the summary.
job() {
  local name="$1" begin="$SECONDS" left=$((limit_s - SECONDS)) status=0
  shift
  timeout -k 5 $((left > 0 ? left : 1)) "$@" >"$logs/$name.log" 2>&1 || status=$?
  echo "$name: exit $status after $((SECONDS - begin)) s, at $SECONDS s" | tee -a "$logs/summary.txt"
}
# LINE COMMAND...: a resident engine that is asked once.
# shellcheck disable=SC2016
ask=(bash -c 'printf "%s\n" "$1" | "${@:2}"' ask)

# In a copy, for the next call replaces the files here; in a session of its own, to outlive this one.
soak="$scratch/soak"
rm -rf "$soak"
mkdir -p "$soak"
cp -r bench python "$soak/"
rm -rf "$soak/bench/results"
# shellcheck disable=SC2016
PYTHONPATH="$soak/python:$soak${PYTHONPATH##"$PWD/python:$PWD"}" setsid bash -c 'cd "$1"
  python3 -m bench soak --model python/lily/models/lily_tiny --device cuda --minutes "$2" \
    --name soak_gpu >soak.log 2>&1
  echo $? >exit_status' soak "$soak" "${MINUTES:-10}" </dev/null >/dev/null 2>&1 &

OUT="$scratch/peer" job build tools/h200/peer.sh build &
build=$!
# shellcheck disable=SC2016
job models bash -c '
  tar -C "$1" -xJf "$2/peer.tar.xz" gguf-py
  python3 -m bench make-full "$1/full" &
  python3 -m bench make-gguf "$1/full.gguf" --gguf-py "$1/gguf-py" && wait $!' \
  models "$scratch" "$packed" &
models=$!
job mlx tools/h200/mlx.sh unpack &
mlx=$!

# What the device holds is noted there before and after: nobody else may hold any at these times.
until grep -qs '^settled' "$soak/soak.log" || [ -f "$soak/exit_status" ] || [ "$SECONDS" -ge 120 ]; do
  sleep 1
done
echo "soak at $SECONDS s: $(tail -n 1 "$soak/soak.log")"
OUT="$logs/tests" LIMIT_S=400 job tests tools/h200/test.sh &
tests=$!
OUT="$logs/sanitizers" LIMIT_S=330 job sanitizers tools/h200/sanitize.sh &
sanitizers=$!

# Each peer once, to know before the next call what it will meet.
wait "$mlx"
wait "$models"
job mlx_once "${ask[@]}" "96 8 0" "$scratch/mlx/python" -m bench resident mlx "$scratch/full" 256
wait "$tests"
wait "$sanitizers"
# Whether Nsight Compute does here what `bench token` asks of it.
job token_once python3 -m bench token --model python/lily/models/lily_tiny --shapes tiny \
  --contexts 256 --prefill 64 --limit 60 --name token_once
wait "$build"
job llama_once "${ask[@]}" "512 32 0" "$scratch/peer/llama_resident" "$scratch/full.gguf" 1024

cp "$scratch"/peer/peer.xz.* "$OUT/" || true
cp "$scratch/peer/peer_build.log" "$logs/" || true
tar -C "$scratch" -cJf "$OUT/checks.tar.xz" checks
for name in build tests sanitizers mlx_once llama_once token_once; do
  echo "--- $name"
  tail -n 14 "$logs/$name.log" | cut -c 1-220
done
# The machine is given back soon after a call: what is left of the soak is waited for here.
until [ -f "$soak/exit_status" ] || [ "$SECONDS" -ge "$limit_s" ]; do
  sleep 1
done
echo "soak at $SECONDS s: $(cat "$soak/exit_status" 2>/dev/null || echo "not ended")"
