#!/usr/bin/env bash
# A type has one definition: two of the same name in one namespace are linked as if they were the same, and what one file
# makes another destroys. Only types at the beginning of a line count; those of unnamed namespaces belong to their file.
#   bash one_definition_test.sh [path/to/ttr]     (the path is not used: every test gets it)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
/usr/bin/python3 - << 'END'
import pathlib, re, sys

opened = re.compile(r'^(?:inline )?namespace( [\w:]+)? \{')
closed = re.compile(r'^\}\s*// namespace')
defined = re.compile(r'^(?:template <.*>\s*)?(?:struct|class) (?:TTR_\w+ )?(\w+)(?: final)?\s*(?::[^:].*)?\{')
places, files = {}, 0
for room in ('include', 'src', 'model', 'tasks', 'language', 'mpi', 'cli'):
    for path in sorted(pathlib.Path(room).rglob('*')):
        if path.suffix not in ('.h', '.cc') or path.name.endswith('_test.cc'):
            continue
        files += 1
        spaces = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := opened.match(line):
                spaces.append((found[1] or ' (unnamed)').strip())
            elif closed.match(line) and spaces:
                spaces.pop()
            elif (found := defined.match(line)) and '(unnamed)' not in spaces:
                places.setdefault('::'.join(spaces + [found[1]]), []).append(f'{path}:{number}')
twice = {name: where for name, where in places.items() if len(where) > 1}
for name, where in twice.items():
    print(f"{name} is defined in {' and in '.join(where)}: give one of them another name", file=sys.stderr)
if len(places) < 300 or 'ttr::cli::Score' not in places:
    sys.exit(f'only {len(places)} types were found in {files} files: the patterns of this test no longer fit the code')
print(f'{len(places)} types in {files} files, {len(twice)} of them defined twice')
sys.exit(1 if twice else 0)
END
