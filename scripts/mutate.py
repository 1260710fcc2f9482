#!/usr/bin/env python3
"""Mutation testing: does a check see it when the code is wrong?

Every entry of mutations.py is a small change of one file and the checks that must fail with it. The tree is copied to
a temporary directory (the working tree is never touched, the copy is removed at the end) and built there once; then
each change by itself is made, built and checked.

  scripts/mutate.py                              all of them
  scripts/mutate.py --only cg-no-stop muon-along
  scripts/mutate.py --list                       what there is; with --verify also that every old text still occurs once
  scripts/mutate.py --json                       the result as JSON
  scripts/mutate.py --build-with 'flock FILE'    every build goes through this command, where a machine is shared

A mutation is killed if one of its checks fails, crashes or hangs; the build warns as errors do, and one that does not
compile is an error of the list. Before the first one the checks run on the code as it is and must pass. Exit code: 0
all killed, 1 some survived, 2 the list is wrong or the code as it is fails. Python's standard library alone.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mutations import MUTATIONS  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 600  # seconds: for what hangs


class Mutation:
    def __init__(self, row):
        self.name, self.file, self.old, self.new, self.meaning, self.checks = row

    def wrong(self, tree):
        """What is wrong with the entry, or None."""
        path = tree / self.file
        if not path.is_file():
            return f"mutation {self.name}: there is no file {self.file}; correct or remove its row in mutations.py"
        count = path.read_text().count(self.old)
        if count != 1:
            how = "no longer occurs" if count == 0 else f"occurs {count} times"
            return (f"mutation {self.name}: its old text {how} in {self.file}; write the row in mutations.py for the "
                    f"code as it is now. The text is: {self.old!r}")
        if self.old == self.new or not self.checks:
            return f"mutation {self.name}: it changes nothing or names no check"
        for check in self.checks:
            words = shlex.split(check)
            if words[0] not in ("check", "golden", "recipes", "test"):
                return f"mutation {self.name}: '{check}' begins with neither check, golden, recipes nor test"
            if words[0] == "test" and not test_file(tree, words[1]):
                return f"mutation {self.name}: there is no {words[1]}_test.cc"
        return None


def test_file(tree, name):
    return next((p for folder in ("tests", "src/families") for p in (tree / folder).rglob(f"{name}_test.cc")), None)


def command_of(check, tree, build):
    words = shlex.split(check)
    program = [str(build / "ttr"), "check", "--quiet"]
    if words[0] == "check":
        return program + words[1:]
    if words[0] == "golden":
        return program + ["--golden", str(tree / "tests" / "golden")] + words[1:]
    if words[0] == "recipes":
        return program + ["--recipes", words[1], "--seed", words[2]]
    return [str(build / "tests" / "ttr_tests"), "--gtest_brief=1", f"--gtest_filter={words[2]}"]


class Workshop:
    """A copy of the tree, its build, and what runs in it."""

    def __init__(self, options, chosen):
        self.options = options
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="mutate-"))
        self.tree, self.build = self.top / "tree", self.top / "tree" / "build"
        self.tests = sorted({shlex.split(c)[1] for m in chosen for c in m.checks if c.startswith("test ")})
        # Objects of the code as it is come from a compiler cache where there is one, wherever the copy lies.
        self.environment = dict(os.environ, CCACHE_BASEDIR=str(self.tree), CCACHE_NOHASHDIR="1")

    def close(self):
        shutil.rmtree(self.top, ignore_errors=True)

    def run(self, command, patience=None):
        """(exit code, output); a run that hangs counts as one that failed."""
        try:
            done = subprocess.run(command, cwd=self.tree, env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=patience)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            return -1, f"no answer within {patience} seconds"

    def prepare(self):
        def ignored(folder, names):  # what builds have made lies in the root
            return [n for n in names if n in (".git", "__pycache__") or (folder == str(TREE) and n.startswith("build"))]

        shutil.copytree(TREE, self.tree, ignore=ignored)
        configure = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTTR_WERROR=ON",
                     f"-DTTR_TARGETS={self.options.targets}", f"-DTTR_TESTS={'ON' if self.tests else 'OFF'}"]
        if self.tests:
            configure.append("-DTTR_TEST_FILES=" + ";".join(self.tests))
        code, output = self.run(configure)
        if code != 0:
            raise SystemExit(f"the copy of the tree cannot be configured:\n{output[-3000:]}")

    def make(self, tests):
        targets = ["ttr_program"] + (["ttr_tests"] if tests else [])
        build = ["cmake", "--build", "build", "--parallel", str(self.options.jobs), "--target"] + targets
        return self.run(shlex.split(self.options.build_with) + build)

    def judge(self, checks):
        """The first check that fails, or None."""
        for check in checks:
            code, output = self.run(command_of(check, self.tree, self.build), self.options.patience)
            if code != 0:
                return check, code, output
        return None

    def try_one(self, m):
        path = self.tree / m.file
        before = path.read_text()
        path.write_text(before.replace(m.old, m.new))
        start = time.time()
        try:
            code, output = self.make(any(c.startswith("test ") for c in m.checks))
            if code != 0:
                return {"result": "error", "by": "the build", "seconds": time.time() - start, "output": output[-2000:]}
            failed = self.judge(m.checks)
            how = "" if not failed or failed[1] in (0, 1) else " (crashed)" if failed[1] < -1 else ""
            return {"result": "killed" if failed else "survived", "by": failed[0] + how if failed else "",
                    "seconds": time.time() - start}
        finally:
            path.write_text(before)


def verify(chosen):
    complaints = [c for c in (m.wrong(TREE) for m in chosen) if c]
    names = [m.name for m in chosen]
    complaints += [f"mutation {n}: the name occurs twice" for n in sorted({n for n in names if names.count(n) > 1})]
    for c in complaints:
        print(c, file=sys.stderr)
    return not complaints


def main():
    p = argparse.ArgumentParser(description="Make the code wrong in small ways and see which checks notice.")
    p.add_argument("--list", action="store_true", help="print the mutations and run none")
    p.add_argument("--verify", action="store_true", help="with --list: fail if an old text does not occur exactly once")
    p.add_argument("--only", nargs="+", metavar="NAME", help="these mutations alone")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="jobs of a build")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.add_argument("--targets", default="AVX3", help="instruction sets to compile (TTR_TARGETS)")
    p.add_argument("--build-with", default="", metavar="COMMAND", help="a command that runs each build")
    p.add_argument("--patience", type=int, default=PATIENCE, help="seconds after which a check counts as hanging")
    options = p.parse_args()

    everything = [Mutation(row) for row in MUTATIONS]
    unknown = set(options.only or []) - {m.name for m in everything}
    if unknown:
        print(f"there is no mutation {', '.join(sorted(unknown))}; --list has their names", file=sys.stderr)
        return 2
    chosen = [m for m in everything if not options.only or m.name in options.only]
    if options.list:
        if options.verify and not verify(chosen):
            return 2
        if options.json:
            print(json.dumps([vars(m) for m in chosen], indent=1))
        else:
            for m in chosen:
                print(f"{m.name:<26} {m.file:<58} {m.meaning}")
            print(f"{len(chosen)} mutations" + (", every old text occurs once" if options.verify else ""))
        return 0
    if not verify(chosen):
        return 2

    chosen.sort(key=lambda m: m.file)  # what was compiled for one file is not compiled back and forth
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # so that the copy is removed then too
    shop = Workshop(options, chosen)
    rows = []
    try:
        shop.prepare()
        code, output = shop.make(bool(shop.tests))
        if code != 0:
            print(f"the code as it is does not compile:\n{output[-3000:]}", file=sys.stderr)
            return 2
        failed = shop.judge(sorted({c for m in chosen for c in m.checks}))
        if failed:
            print(f"'{failed[0]}' fails for the code as it is:\n{failed[2][-3000:]}", file=sys.stderr)
            return 2
        for m in chosen:
            row = {"name": m.name, "file": m.file, "meaning": m.meaning, **shop.try_one(m)}
            rows.append(row)
            if not options.json:
                print(f"{row['name']:<26} {row['result']:<9} {row['seconds']:5.0f} s  {row['by'] or m.meaning}",
                      flush=True)
                if "output" in row:
                    print(row["output"], file=sys.stderr)
    finally:
        shop.close()
    count = {r: sum(row["result"] == r for row in rows) for r in ("killed", "survived", "error")}
    if options.json:
        print(json.dumps({"mutations": rows, **count}, indent=1))
    else:
        print(f"{count['killed']} killed, {count['survived']} survived, {count['error']} not compiled")
    return 2 if count["error"] else 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
