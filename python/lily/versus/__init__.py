"""``lily bench --vs mlx-lm``: both engines side by side on this machine, ready to be published.

The method: the same MLX 4-bit folder and the same synthetic token ids for both; each sample a fresh
process that loads, runs once at the exact shape to warm up, and is then timed; engines take turns,
the one that begins changing from round to round; a pause before every process, and none begins
while the machine is hot or on its battery; an engine's greedy tokens must repeat in all rounds.
`plan` owns what is refused beforehand, `child` the engines, `measure` the order, `report` the
files.
"""
