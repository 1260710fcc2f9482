#!/usr/bin/env python3
"""Makes golden vectors from equations, and compares them with those of a folder.

    generate.py --compare tests/golden              every operation: outputs and gradients from the stored inputs
    generate.py gla kalman --compare tests/golden   some operations
    generate.py nlms --out /tmp/new --seed 7        new inputs, outputs and gradients; seed 0 has the stored inputs
    generate.py --list                              operations, cases, equations

Everything is computed in double with numpy; tape.py differentiates. --compare takes in.* and grad_out.* from the
files and computes out.* and grad_in.* anew; an error is the largest difference of a tensor, relative to its largest
value. It also draws the inputs again, and says whether they are the stored ones bit for bit. --out draws inputs
instead (again, where an equation says of those of a seed other than 0 that they lose too many digits), and checks
every gradient by a difference of the loss along a random direction; with --compare it writes what was computed from
the stored inputs.

Exit code: 0, 1 if something failed, 2 if the command could not be understood or run.
"""
from __future__ import annotations

import argparse
import difflib
import importlib
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn, Optional

try:
    import numpy as np
except ImportError:
    print(f'golden: {sys.executable} has no numpy. On Debian `bash scripts/install-dependencies.sh` installs it for '
          f'/usr/bin/python3: run this with that one.', file=sys.stderr)
    sys.exit(2)

sys.dont_write_bytecode = True  # no __pycache__ in the source tree

import tape
import tensors
from draws import exact
from registry import OPERATIONS, Arrays, Operation

MODULES = ('attention', 'delta', 'elementwise', 'feature_maps', 'least_squares', 'linear', 'local', 'network')
DIFFERENCE_TOLERANCE = 1e-6  # of the difference of the loss: 4e-9 at most with the seed 0
STEPS = (1e-5, 1e-6, 1e-7, 1e-8)  # of the difference; shorter ones lose digits


@dataclass
class Row:
    """What is known of an operation after it ran."""
    operation: str
    cases: int = 0
    error: float = 0.0
    where: str = ''
    same_inputs: int = 0
    origin: str = 'equation'
    problems: list[str] = field(default_factory=list)

    def note(self, error: float, where: str) -> None:
        if not error <= self.error:
            self.error, self.where = error, where


def refuse(sentence: str) -> NoReturn:
    print(f'golden: {sentence}', file=sys.stderr)
    sys.exit(2)


def difference(new: np.ndarray, stored: np.ndarray) -> float:
    """The largest difference, relative to the largest stored value; infinite if something is not a number."""
    if new.shape != stored.shape or not np.isfinite(new).all():
        return float('inf')
    if new.size == 0:
        return 0.0
    largest = float(np.abs(stored).max())
    return float(np.abs(new - stored).max()) / (largest if largest > 0 else 1.0)


def named(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: value for name, value in arrays.items()}


def without(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays with that prefix, without it, in double."""
    return {name[len(prefix):]: value.astype(np.float64) for name, value in arrays.items() if name.startswith(prefix)}


def compute(operation: Operation, case: str, inputs: Arrays, upstream: Optional[Arrays],
            seed: int) -> tuple[Arrays, Arrays]:
    """Outputs and gradients, and the upstream gradients, which are drawn if there are none."""
    outputs, leaves = operation.outputs(case, inputs, True)
    if upstream is None:
        upstream = operation.upstream(case, outputs, seed)
    made = named('out.', {name: value.value for name, value in outputs.items()})
    return dict(made, **named('grad_in.', operation.gradients(outputs, leaves, upstream))), upstream


def compare_case(operation: Operation, case: str, folder: Path, row: Row,
                 tolerance: float) -> Optional[dict[str, Arrays]]:
    """Computes a stored case anew and notes in the row how far it is."""
    path = folder / operation.name / f'{case}.safetensors'
    if not path.is_file():
        row.problems.append(f'{operation.name}/{case}: there is no {path}')
        return None
    try:
        stored, metadata = tensors.read(path)
    except tensors.BadFile as error:
        row.problems.append(str(error))
        return None
    row.origin = 'equation' if metadata.get('source', '').startswith('equation') else 'reference'
    inputs, upstream = without('in.', stored), without('grad_out.', stored)
    try:
        made, _ = compute(operation, case, inputs, upstream, 0)
    except Exception as error:  # an equation that does not fit its file
        row.problems.append(f'{operation.name}/{case}: {type(error).__name__}: {error}')
        return None
    expected = dict(named('out.', without('out.', stored)), **named('grad_in.', without('grad_in.', stored)))
    if set(expected) != set(made):
        unlike = ', '.join(sorted(set(expected) ^ set(made)))
        row.problems.append(f'{operation.name}/{case}: file and equation do not have the same tensors ({unlike})')
    for name in expected.keys() & made.keys():
        error = difference(made[name], expected[name])
        row.note(error, f'{case} {name}')
        if not error <= tolerance:
            row.problems.append(f'{operation.name}/{case}: {name} differs by {error:.1e}, more than {tolerance:g}')
    drawn = operation.inputs(case, 0)
    same = drawn.keys() == inputs.keys() and all(np.array_equal(drawn[name], inputs[name]) for name in inputs)
    row.same_inputs += same
    return {'in.': inputs, '': made, 'grad_out.': upstream}


def derivative_error(operation: Operation, case: str, inputs: Arrays, upstream: Arrays, made: Arrays) -> float:
    """The gradient against a difference of the loss along one random direction, relative to the norm of its terms:
    they may cancel in the sum, and the rounding of the loss does not. The points of the difference lie on one side of
    every kink: where steps cross one (of a relu, say), they are made shorter."""
    random = np.random.default_rng(5)
    direction = {}
    for name in without('grad_in.', made):
        along = random.standard_normal(inputs[name].shape) * (0.1 + np.abs(inputs[name]).mean()) * 0.3
        direction[name] = (along + np.swapaxes(along, -1, -2)) / 2 if name in operation.symmetric else along

    def loss(step: float) -> tuple[float, list[bytes]]:
        moved = {name: value + step * direction.get(name, 0.0) for name, value in inputs.items()}
        with tape.choices() as chosen:
            outputs, _ = operation.outputs(case, moved, False)
        return sum(float((outputs[name].value * g).sum()) for name, g in upstream.items()), chosen
    for h in STEPS:
        losses, chosen = zip(*(loss(times * h) for times in (1, -1, 2, -2)))
        if all(other == chosen[0] for other in chosen):
            break
    slope = (8 * (losses[0] - losses[1]) - (losses[2] - losses[3])) / (12 * h)
    terms = np.concatenate([(made['grad_in.' + name] * along).ravel() for name, along in direction.items()])
    return abs(slope - float(terms.sum())) / max(float(np.sqrt((terms * terms).sum())), 1e-300)


def make_case(operation: Operation, case: str, row: Row, seed: int) -> tuple[dict[str, Arrays], float]:
    """Draws inputs, computes, and notes how far the gradient is from a difference."""
    inputs = operation.inputs(case, seed)
    made, upstream = compute(operation, case, inputs, None, seed)
    for name, value in inputs.items():
        if not np.array_equal(exact(value), value):
            row.problems.append(f'{operation.name}/{case}: in.{name} is not exact in float32; draw it with exact()')
    for name, value in made.items():
        if not np.isfinite(value).all():
            row.problems.append(f'{operation.name}/{case}: {name} is not finite; draw other inputs')
    error = 0.0 if operation.forward_only else derivative_error(operation, case, inputs, upstream, made)
    row.note(error, case)
    if not error <= DIFFERENCE_TOLERANCE:
        row.problems.append(f'{operation.name}/{case}: the gradient differs from a difference of the loss by '
                            f'{error:.1e}, more than {DIFFERENCE_TOLERANCE:g}')
    return {'in.': inputs, '': made, 'grad_out.': upstream}, error


def write_case(operation: Operation, case: str, folder: Path, parts: dict[str, Arrays], more: dict[str, str]) -> None:
    """Writes a golden file: inputs and upstream gradients in float32, the rest in double."""
    made = parts['']
    arrays = {name: value.astype(np.float32) for name, value in named('in.', parts['in.']).items()}
    arrays.update((name, value) for name, value in made.items() if name.startswith('out.'))
    arrays.update((name, value.astype(np.float32)) for name, value in named('grad_out.', parts['grad_out.']).items())
    arrays.update((name, value) for name, value in made.items() if name.startswith('grad_in.'))
    metadata = {'op': operation.name, 'case': case, 'framework': f'numpy {np.__version__} float64',
                'inputs_dtype': 'F32 storage, exactly representable; cast to f64 before use',
                'loss': 'sum over outputs of sum(out.X * grad_out.X)', 'source': 'equation',
                **operation.text, **operation.cases[case], **more}
    tensors.write(folder / operation.name / f'{case}.safetensors', arrays, metadata)


def chosen(names: list[str], folder: Optional[Path]) -> list[Operation]:
    """The operations named, or all."""
    for name in names:
        if name in OPERATIONS:
            continue
        if folder is not None and (folder / name).is_dir():
            refuse(f"'{name}' is in {folder}, but has no equation in scripts/golden.")
        near = difflib.get_close_matches(name, OPERATIONS, 1)
        advice = f" Do you mean '{near[0]}'?" if near else ''
        refuse(f"there is no operation '{name}'.{advice} --list has all.")
    return [OPERATIONS[name] for name in names or sorted(OPERATIONS)]


def strangers(folder: Path, operations: list[Operation], rows: dict[str, Row], all_of_them: bool) -> list[str]:
    """Operations of the folder that have no equation here. Files that are no case of an operation are its problem."""
    for operation in operations:
        for path in sorted((folder / operation.name).glob('*.safetensors')):
            if path.stem not in operation.cases:
                rows[operation.name].problems.append(
                    f'{path} is no case of {operation.name} in scripts/golden; add it to its cases')
    if not all_of_them:
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in OPERATIONS)


def print_list(operations: list[Operation]) -> None:
    for operation in operations:
        print(f"{operation.name}\n    {operation.text['eq']}\n    {' '.join(operation.cases)}")
    print(f'{len(operations)} operations')


def print_table(rows: list[Row], unknown: list[str], options: argparse.Namespace) -> None:
    """The table and what it comes to."""
    width = max(len(row.operation) for row in rows)
    comparing = options.compare is not None
    head = f"{'operation':{width}}  cases  " + ('stored by  inputs  ' if comparing else '') + 'largest error'
    print(head)
    for row in rows:
        inputs = 'same' if row.same_inputs == row.cases else 'other'
        print(f'{row.operation:{width}}  {row.cases:5}  ' + (f'{row.origin:9}  {inputs:6}  ' if comparing else '')
              + f"{row.error:13.1e}  {'FAILED' if row.problems else 'ok'}")
    for row in rows:
        for problem in row.problems:
            print(f'FAILED  {problem}')
    cases, worst = sum(row.cases for row in rows), max(rows, key=lambda row: row.error)
    failed = sum(bool(row.problems) for row in rows)
    print(f'\n{len(rows)} operations, {cases} cases, {failed} failed; largest error {worst.error:.1e} '
          f'({worst.operation} {worst.where})')
    if comparing:
        same = sum(row.same_inputs for row in rows)
        print(f'inputs drawn again: {same} of {cases} cases bit for bit; the equations were given the stored ones')
        by_reference = sum(row.origin == 'reference' for row in rows)
        print(f'stored by the equation: {len(rows) - by_reference} operations; by a reference function of another '
              f'project: {by_reference}')
        if not options.operations:
            print(f'no equation here: {len(unknown)} operations of {options.compare}'
                  + (': ' + ', '.join(unknown) if unknown else ''))


def arguments() -> argparse.Namespace:
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            refuse(f'{message}. --help has the options.')
    parser = Parser(prog='generate.py', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('operations', nargs='*', metavar='OPERATION', help='operations; all if none is named')
    parser.add_argument('--list', action='store_true', help='print operations, equations and cases')
    parser.add_argument('--compare', type=Path, metavar='DIR', help='compute the files of DIR anew and compare')
    parser.add_argument('--out', type=Path, metavar='DIR', help='write the files to DIR/OPERATION/CASE.safetensors')
    parser.add_argument('--seed', type=int, metavar='N', help='with --out: which inputs (default 0, the stored ones)')
    parser.add_argument('--tolerance', type=float, default=1e-10, metavar='X', help='with --compare (default 1e-10)')
    parser.add_argument('--force', action='store_true', help='with --out: write over files that exist')
    parser.add_argument('--json', action='store_true', help='print JSON instead of the table')
    options = parser.parse_args()
    if not (options.list or options.compare or options.out):
        refuse('what is to be done? --compare DIR, --out DIR or --list.')
    if options.compare and not options.compare.is_dir():
        refuse(f"--compare: there is no folder '{options.compare}'. The stored vectors are in tests/golden.")
    if options.compare and options.seed is not None:
        refuse('--seed draws inputs, --compare takes those of the files: use one of them.')
    if options.seed is not None and not options.out:
        refuse('--seed is for --out DIR, which writes what was made.')
    if options.seed is not None and not 0 <= options.seed < 2 ** 31:
        refuse(f'--seed {options.seed}: a number from 0 to {2 ** 31 - 1}.')
    if not options.tolerance >= 0:
        refuse(f'--tolerance {options.tolerance}: a number of at least 0.')
    return options


def main() -> int:
    options = arguments()
    for module in MODULES:
        importlib.import_module(module)
    operations = chosen(options.operations, options.compare)
    if options.list:
        print_list(operations)
        return 0
    if options.out and not options.force:
        for operation in operations:
            for case in operation.cases:
                path = options.out / operation.name / f'{case}.safetensors'
                if path.exists():
                    refuse(f"'{path}' exists. --force writes over it.")
    rows = {operation.name: Row(operation.name) for operation in operations}
    for operation in operations:
        row = rows[operation.name]
        for case in operation.cases:
            row.cases += 1
            if options.compare:
                parts, more = compare_case(operation, case, options.compare, row, options.tolerance), {}
            else:
                parts, error = make_case(operation, case, row, options.seed or 0)
                more = {} if operation.forward_only else {
                    'finite_difference': f'{error:.1e} (relative error of one directional derivative)'}
            if options.out and parts and not row.problems:
                write_case(operation, case, options.out, parts, more)
    unknown = strangers(options.compare, operations, rows, not options.operations) if options.compare else []
    failed = sum(bool(row.problems) for row in rows.values())
    if options.json:
        print(json.dumps({'tolerance': options.tolerance if options.compare else DIFFERENCE_TOLERANCE,
                          'operations': [dict(asdict(row), ok=not row.problems) for row in rows.values()],
                          'no_equation': unknown, 'failed': failed}, indent=1))
    else:
        print_table(list(rows.values()), unknown, options)
    return 1 if failed else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except OSError as error:
        refuse(f'{error.filename}: {error.strerror}.')
