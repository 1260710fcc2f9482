#!/usr/bin/env python3
"""Counts what one token of a layer executes, per head: instructions, multiply-adds, loads, stores.

    scripts/count-instructions.py gla gla@128x128 mamba-2@128x64     (`make count` builds the program and runs this)

The layer runs under callgrind, once with N repeats and once with 2 N. The difference is N repeats without what
happens once, such as binding symbols; start, random inputs and planning are not counted at all. The count of every
address is joined with its instruction in the listing of objdump. These are exact counts, the same on every run; how
long the instructions take is not in them. callgrind knows no AVX-512, so it is the AVX2 kernels that are counted:
eight floats to a vector. callgrind counts the turns of a `rep` (bytes that libc copies or clears), which are no
instructions: they are left out, and are `rep_turns` in the JSON.

What counts as what:
  FMA         multiply-adds on vectors
  float       other float arithmetic on vectors: multiply, add, divide, root, max, min
  other       what else is done with vectors: shuffles, integer operations, moves that are not plain loads and stores
  loads       vector instructions that read memory: plain loads, broadcasts, and operands folded into FMA and float
  stores      vector instructions that write memory
  stack       those of the loads that read the stack: vectors that found no register
  scalar      instructions without vectors, and floats one at a time
  flops       2 per lane of an FMA, 1 per lane of other float arithmetic, scalar ones included
  useful      operations of the plain recurrence, as `ttr bench` counts them (docs/performance.md)
"""
import argparse
import collections
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = re.compile(r"@(\d+)x(\d+)(?:x(\d+))?$")
FMA = re.compile(r"vfn?m(?:add|sub|addsub|subadd)\d{3}([ps])([sd])$")
FLOAT = re.compile(r"v?(?:mul|add|sub|div|sqrt|max|min|hadd|addsub)([ps])([sd])$")
PLAIN_MOVE = re.compile(r"v?(?:mov(?:[au]p[sd]|dq[au]|ntp?[sd]?|ntdq)|broadcast(?:s[sd]|f128|i128)|maskmovp[sd])$")
REGISTER = re.compile(r"%([xyz])mm\d+")
BYTES = {"x": 16, "y": 32, "z": 64}
NO_ACCESS = ("lea", "nop", "prefetch", "data16", "cs")  # have a memory operand that is not read


class Failure(Exception):
    """A sentence for the user."""


def arguments():
    parser = argparse.ArgumentParser(
        description="Counts what one token of a layer executes, per head, under callgrind (AVX2 kernels).")
    parser.add_argument("layer", nargs="+",
                        help="a layer; layer@KxV or layer@KxVxT gives it sizes of its own, such as mamba-2@128x64")
    parser.add_argument("--key-dim", type=int, default=64, help="key_dim of layers without @ (default: 64)")
    parser.add_argument("--value-dim", type=int, default=64, help="value_dim of layers without @ (default: 64)")
    parser.add_argument("--heads", type=int, default=8, help="default: 8")
    parser.add_argument("--time", type=int, default=256, help="tokens of layers without @KxVxT (default: 256)")
    parser.add_argument("--gates", default="gentle", help="gentle, mixed, strong, channel, token, a number or a file")
    parser.add_argument("--form", default="best", help="best, recurrent, chunk, parallel or scan")
    parser.add_argument("--backward", action="store_true", help="the backward pass instead of the forward pass")
    parser.add_argument("--repeat", type=int, default=1, help="N: counts are of 2 N runs less N runs (default: 1)")
    parser.add_argument("--target", default="AVX2", help="instruction set; not AVX-512 (default: AVX2)")
    parser.add_argument("--top", type=int, default=5, help="functions to list per layer (default: 5)")
    parser.add_argument("--program", default=os.path.join(ROOT, "build-bench", "bench", "ttr_once"), help="ttr_once")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def check(options):
    if platform.machine() != "x86_64":
        raise Failure(f"this counts x86-64 instructions and the machine is {platform.machine()}")
    for tool, package in (("valgrind", "valgrind"), ("objdump", "binutils")):
        if not shutil.which(tool):
            raise Failure(f"{tool} is missing; `apt-get install {package}` or `make count` installs it")
    if not os.access(options.program, os.X_OK):
        raise Failure(f"there is no program {options.program}; `make count` builds it, --program names another")
    for name in ("key_dim", "value_dim", "heads", "time", "repeat"):
        if getattr(options, name) < 1:
            raise Failure(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be 1 or more")


def run(command, target):
    done = subprocess.run(command, env=dict(os.environ, TTR_TARGET=target), capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        if said and done.returncode == 2:  # a sentence of ttr_once
            raise Failure(said[-1])
        raise Failure(f"`{' '.join(command)}` ended with code {done.returncode}: {' '.join(said[:3])}")
    return done.stdout


def read_callgrind(path):
    """{(object, address): count} and {(object, address): function}; costs of calls belong to the callee."""
    counts, functions = collections.Counter(), {}
    names = {"ob": {}, "fn": {}}
    current = {"ob": "", "fn": ""}
    after_call = False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("0x"):
                if not after_call:
                    address, _, count = line.split()
                    key = (current["ob"], int(address, 16))
                    counts[key] += int(count)
                    functions[key] = current["fn"]
                after_call = False
            elif line.startswith("calls="):
                after_call = True
            elif line.startswith(("ob=", "fn=", "cob=", "cfn=")):
                field, _, text = line.strip().partition("=")
                kind = field[-2:]
                number, _, name = text.partition(" ")  # "(7) name" once, also of a callee; "(7)" from then on
                if name:
                    names[kind][number] = name
                if field == kind:
                    current[kind] = names[kind][number]
    return counts, functions


def profile(options, case, repeats, folder):
    out = os.path.join(folder, "callgrind.out")
    inside = f"ttr::Plan::{'backward' if options.backward else 'forward'}(*"  # not: rewinding the state between runs
    run(["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", "--cache-sim=no", "--compress-pos=no",
         f"--toggle-collect={inside}", f"--callgrind-out-file={out}", *case, "--repeat", str(repeats)],
        options.target)
    return read_callgrind(out)


def listing(path, addresses):
    """The instructions of an object at these addresses, as objdump writes them."""
    found = {}
    with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", path], stdout=subprocess.PIPE, text=True,
                          errors="replace") as process:
        for line in process.stdout:
            address, colon, text = line.partition(":\t")
            if colon and (number := int(address, 16)) in addresses:
                found[number] = text.split("#")[0].strip()
    return found


def operands_of(text):
    operands, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            operands.append("")
        else:
            operands[-1] += c
    return [operand.strip() for operand in operands]


def classify(text):
    """What one execution of an instruction adds to the counts."""
    mnemonic, _, rest = text.partition(" ")
    if mnemonic.startswith("rep"):
        return {"rep_turns": 1}
    operands = operands_of(rest.strip()) if rest.strip() else []
    adds = collections.Counter(instructions=1)
    registers = REGISTER.findall(rest)
    memory = [("(" in operand or operand.startswith("%fs:")) and not operand.startswith("*") for operand in operands]
    fma, arithmetic = FMA.match(mnemonic), FLOAT.match(mnemonic)
    if fma or arithmetic:
        packed, number = (fma or arithmetic).groups()
        lanes = max(BYTES[r] for r in registers) // (4 if number == "s" else 8) if packed == "p" else 1
        adds["flops"] = lanes * (2 if fma else 1)
        kind = "scalar" if packed == "s" else "fma" if fma else "float"
    elif registers and (mnemonic.startswith(("vp", "vbroadcast")) or not mnemonic.endswith(("ss", "sd"))):
        kind = "move" if PLAIN_MOVE.match(mnemonic) and any(memory) else "other"
    else:
        kind = "scalar"
    adds[kind] = 1
    if not any(memory) or mnemonic.startswith(NO_ACCESS):
        return adds
    writes = memory[-1] and not mnemonic.startswith(("cmp", "test", "bt", "vucomis", "vcomis", "vptest", "vtestp"))
    reads = not writes or not registers and len(operands) > 1 and not mnemonic.startswith(("mov", "set", "vmov"))
    of = "scalar_" if kind == "scalar" else ""
    adds[of + "loads"] = int(reads)
    adds[of + "stores"] = int(writes)
    adds["broadcasts"] = int(mnemonic.startswith("vbroadcast"))
    if not of:  # registers that had to go to the stack
        adds["stack_loads"] = int(reads and any("(%rsp" in operand for operand in operands))
        adds["stack_stores"] = int(writes and any("(%rsp" in operand for operand in operands))
    return adds


def without_brackets(text, opening, closing):
    kept, depth = "", 0
    for c in text:
        depth += c == opening
        if depth == 0:
            kept += c
        depth -= c == closing
    return kept


def short(name):
    """The last words of a demangled name: class and function, without namespaces and arguments."""
    name = name.replace("(anonymous namespace)::", "").replace("operator()", "call")
    name = re.sub(r"( \[clone.*\]| const|'\d+)+$", "", name)
    name = without_brackets(without_brackets(name, "<", ">"), "(", ")").split(" ")[-1]
    parts = [part for part in name.split("::") if not re.fullmatch(r"call|_FUN|\{lambda.*", part)]
    while len(parts) > 1 and (parts[0].islower() or parts[0].startswith("N_")):  # namespaces
        parts.pop(0)
    return "::".join(parts[-2:])


def count(options):
    """One dictionary per layer."""
    profiles, cases = [], []
    with tempfile.TemporaryDirectory() as folder:
        for text in options.layer:
            sizes = SIZES.search(text)
            layer = text[:sizes.start()] if sizes else text
            key_dim, value_dim = map(int, sizes.groups()[:2]) if sizes else (options.key_dim, options.value_dim)
            time = int(sizes[3]) if sizes and sizes[3] else options.time
            command = [options.program, layer, "--key-dim", str(key_dim), "--value-dim", str(value_dim), "--heads",
                       str(options.heads), "--time", str(time), "--form", options.form, "--gates", options.gates]
            command += ["--backward"] if options.backward else []
            about = json.loads(run(command + ["--describe"], options.target))
            once, functions = profile(options, command, options.repeat, folder)
            twice, more_functions = profile(options, command, 2 * options.repeat, folder)
            twice.subtract(once)
            profiles.append(({key: n for key, n in twice.items() if n != 0}, {**functions, **more_functions}))
            cases.append({"layer": layer, "key_dim": key_dim, "value_dim": value_dim, "time": time,
                          "form": about["form"], "useful_flops": about["useful_flops"]})
    wanted = collections.defaultdict(set)
    for counts, _ in profiles:
        for place, address in counts:
            wanted[place].add(address)
    texts = {place: listing(place, addresses) for place, addresses in wanted.items() if os.path.exists(place)}
    for case, (counts, functions) in zip(cases, profiles):
        per = options.repeat * case["time"] * options.heads
        total, by_function = collections.Counter(), collections.defaultdict(collections.Counter)
        unknown = 0
        for (place, address), n in counts.items():
            text = texts.get(place, {}).get(address)
            unknown += 0 if text else abs(n)
            adds = classify(text) if text else {"instructions": 1, "scalar": 1}
            for what, amount in adds.items():
                total[what] += amount * n / per
                by_function[short(functions[(place, address)])][what] += amount * n / per
        if unknown > 0.001 * per * total["instructions"]:
            raise Failure(f"{case['layer']}: {unknown} of the instructions counted are not in the listing of "
                          "objdump; was the program built again meanwhile?")
        case.update(per_token_and_head(total))
        first = sorted(by_function.items(), key=lambda item: -item[1]["instructions"])[:options.top]
        case["functions"] = [{"name": name, "share": own["instructions"] / total["instructions"],
                              **per_token_and_head(own)} for name, own in first
                             if own["instructions"] >= 0.005 * total["instructions"]]
    return cases


def per_token_and_head(counts):
    names = ("instructions", "fma", "float", "move", "other", "scalar", "loads", "broadcasts", "stores",
             "stack_loads", "stack_stores", "scalar_loads", "scalar_stores", "rep_turns", "flops")
    result = {name: round(counts[name], 2) for name in names}
    fma = counts["fma"]
    result["flops_per_instruction"] = counts["flops"] / counts["instructions"] if counts["instructions"] else None
    result["loads_per_fma"] = counts["loads"] / fma if fma > 0 else None
    result["stores_per_fma"] = counts["stores"] / fma if fma > 0 else None
    return result


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join("" if cell is None else cell for cell in row) + " |")


def whole(x):
    return None if x is None else f"{x:.0f}"


def hundredths(x):
    return None if x is None else f"{x:.2f}"


def report(cases, options):
    print(f"Per token and head, {'backward' if options.backward else 'forward'}, {options.heads} heads, "
          f"{options.target}. `loads` hold broadcasts, reads of the stack, and operands folded into FMA and float.\n")
    table(["layer", "K, V, T", "form", "instr.", "FMA", "float", "other", "loads", "broadcasts", "stack", "stores",
           "scalar", "scalar loads"],
          [[c["layer"], f"{c['key_dim']}, {c['value_dim']}, {c['time']}", c["form"]] +
           [whole(c[name]) for name in ("instructions", "fma", "float", "other", "loads", "broadcasts", "stack_loads",
                                        "stores", "scalar", "scalar_loads")] for c in cases])
    print()
    table(["layer", "K, V", "flops", "useful", "flops / useful", "flops / instr.", "loads / FMA", "stores / FMA",
           "FMA, % of instr."],
          [[c["layer"], f"{c['key_dim']}, {c['value_dim']}", whole(c["flops"]), whole(c["useful_flops"]),
            hundredths(c["flops"] / c["useful_flops"]) if c["useful_flops"] else None,
            hundredths(c["flops_per_instruction"]), hundredths(c["loads_per_fma"]), hundredths(c["stores_per_fma"]),
            whole(100 * c["fma"] / c["instructions"])] for c in cases])
    print()
    table(["layer", "K, V", "function", "% of instr.", "flops / instr.", "loads / FMA", "stores / FMA"],
          [[c["layer"], f"{c['key_dim']}, {c['value_dim']}", f"`{f['name']}`", whole(100 * f["share"]),
            hundredths(f["flops_per_instruction"]), hundredths(f["loads_per_fma"]), hundredths(f["stores_per_fma"])]
           for c in cases for f in c["functions"]])


def main():
    options = arguments()
    try:
        check(options)
        cases = count(options)
    except Failure as failure:
        print(f"count-instructions: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        if options.json:
            print(json.dumps({"heads": options.heads, "target": options.target,
                              "pass": "backward" if options.backward else "forward", "layers": cases}, indent=1))
        else:
            report(cases, options)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader that has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
