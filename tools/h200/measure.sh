#!/usr/bin/env bash
# The second of two calls on one machine, after soak_and_build.sh: the end of its soak, and then, with
# nothing beside, the ten lengths with the peers, the table of a token, and the single kernels.
# Results go to $OUT as JSON, logs to $OUT/measure.tar.xz.
# usage: tools/h200/measure.sh [PART ...]   (soak lengths token gpu; LIMIT_S: its own time, 570)
source "$(dirname "$0")/setup.sh"
limit_s="${LIMIT_S:-570}" logs="$scratch/measure"
rm -rf "$logs"
mkdir -p "$logs"
touch "$logs/begin"
parts=" ${*:-soak lengths token gpu} "
wanted() { [[ "$parts" == *" $1 "* ]]; }

# NAME SECONDS COMMAND...: interrupted then, which the benchmarks take as "write what is there".
part() {
  local name="$1" most="$2" begin="$SECONDS" left=$((limit_s - SECONDS - 5)) status=0
  shift 2
  [ "$left" -lt "$most" ] && most="$left"
  [ "$most" -gt 0 ] || { echo "$name: no time left"; return; }
  timeout -s INT -k 10 "$most" "$@" >"$logs/$name.log" 2>&1 || status=$?
  echo "--- $name: exit $status after $((SECONDS - begin)) s, at $SECONDS s"
  grep -a '^note' "$logs/$name.log" | tail -n 12 | cut -c 1-170 || true
  grep -av '^note' "$logs/$name.log" | tail -n 30 | cut -c 1-230 || true
  # Not one that was there before.
  [ ! "bench/results/$name.json" -nt "$logs/begin" ] || cp "bench/results/$name.json" "$OUT/"
}

if wanted soak; then
  soak="$scratch/soak"
  until [ -f "$soak/exit_status" ] || [ "$SECONDS" -ge 150 ]; do sleep 1; done
  echo "--- soak at $SECONDS s: exit $(cat "$soak/exit_status" 2>/dev/null || echo "none yet")"
  tail -n 4 "$soak/soak.log" && cp "$soak/soak.log" "$logs/"
  cp "$soak/bench/results/soak_gpu.json" "$OUT/"
fi || echo "the soak left no result"

if wanted lengths; then
  peer="$scratch/peer/llama_resident" peers=()
  # What the first call did not finish goes on where it stood.
  if [ ! -x "$peer" ] && [ -d "$scratch/peer/build" ]; then
    OUT="$scratch/peer" timeout 200 tools/h200/peer.sh build >"$logs/build.log" 2>&1 || true
  fi
  if [ -x "$peer" ]; then
    note="of llama-cpp-python 0.3.36, built for sm_90 by tools/h200/peer.sh"
    peers+=(--llama "$peer" --gguf "$scratch/full.gguf" --llama-note "$note")
  fi
  if [ -x "$scratch/mlx/python" ]; then
    peers+=(--mlx "$scratch/full" --mlx-python "$scratch/mlx/python")
  fi
  part lengths 345 python3 -m bench lengths --model "$scratch/full" --device cuda "${peers[@]}" \
    --rounds 2 --seconds 260 --limit 60
fi
if wanted token; then
  part token 140 python3 -m bench token --model "$scratch/full" --limit 60 --logs "$logs/ncu"
fi
if wanted gpu; then
  left=$((limit_s - SECONDS - 25))
  part gpu_kernels 120 python3 -m bench gpu --device cuda --rounds 3 \
    --seconds $((left < 80 ? left : 80))
fi
tar -C "$scratch" -cJf "$OUT/measure.tar.xz" measure
ls -l "$OUT"
