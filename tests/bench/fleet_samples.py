"""Writes the text of `perf script` for traces with many samples, as input of fleet.py.

    for n in $(seq 0 19); do python3 tests/bench/fleet_samples.py $n 100000 | perfquet-convert - --no-symbols -o t$n.pqt; done

Stacks have 4 to 18 frames of 400 functions in 12 modules. Traces from number 10 on have twice the weight in one function, `parse_7`.
"""

import random
import sys

MODULES = ["/usr/bin/server", "/usr/bin/worker"] + [f"/usr/lib/lib{name}.so.1" for name in "abcdefgh"] + ["/usr/lib/libc.so.6", "[kernel.kallsyms]"]
VERBS = ["parse", "read", "write", "hash", "copy", "find", "sort", "send", "wait", "lock"]


def main():
    number, count = int(sys.argv[1]), int(sys.argv[2])
    # The functions are the same in all traces, what calls what and how often is not.
    functions = [(0x401000 + 0x1000 * at, f"{VERBS[at % 10]}_{at}", MODULES[at * 12 // 400]) for at in range(400)]
    choice = random.Random(number)
    callees = [choice.sample(range(400), 3) for _ in functions]
    stacks = []
    for _ in range(2000):
        at, path = choice.randrange(8), []
        for _ in range(choice.randint(4, 18)):
            path.append(at)
            at = callees[at][min(int(choice.expovariate(1.2)), 2)]
        stacks.append(path)
    if number >= 10:
        stacks += [path[:-1] + [7] for path in stacks[:100]]
    texts = []
    for path in stacks:
        lines = [f"\t{address + 16:16x} {name}+0x10 ({module})" for address, name, module in map(functions.__getitem__, reversed(path))]
        texts.append("\n".join(lines))
    weights = [1 / (rank + 10) for rank in range(len(stacks))]
    threads = [(f"worker-{at % 24}", 1000 + at // 8, 1000 + at) for at in range(96)]
    time = 1_000_000_000_000 + number * 1_000_000_000
    for path in choice.choices(range(len(stacks)), weights, k=count):
        comm, pid, tid = threads[int(choice.triangular(0, 96, 10))]
        time += choice.randint(1000, 250_000)
        period = int(choice.lognormvariate(13.8, 0.4))
        print(f"{comm} {pid}/{tid} [{tid % 16:03}] {time // 1_000_000_000}.{time % 1_000_000_000:09}: {period:>10} cycles: \n{texts[path]}\n")


main()
