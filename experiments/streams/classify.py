"""Classes, one row after the other: `ttr regress --classify` beside what scikit-learn and Vowpal Wabbit say of the same rows.

    python3 experiments/streams/classify.py build/ttr [SET..]          a table on standard output; some minutes

Every row is predicted, then learned, by all of them; the first K + 1 rows (K keys, with the intercept) are not scored.
scikit-learn's SGDClassifier sees keys that a running StandardScaler has scaled, and is run with several steps: its best one is
chosen after the fact, which is to its advantage. LogisticRegression is fitted anew to all rows before each tenth row. Vowpal
Wabbit (the program `vw`, or the one that the variable VW names, where there is one) has its normalised, adaptive steps,
one-against-all with logistic loss and probabilities. Data: scikit-learn's copies of iris, breast cancer (Wisconsin) and digits in one random order, and
examples/data of this repository (penguins; tomorrow's weather).
"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

warnings.filterwarnings("ignore")
ttr, vw = os.path.realpath(sys.argv[1]), os.environ.get("VW") or shutil.which("vw")
data = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../examples/data")


def sets():
    for name, load in (("iris", load_iris), ("breast cancer", load_breast_cancer), ("digits", load_digits)):
        bunch = load()
        order = np.random.default_rng(1).permutation(len(bunch.target))
        yield name, bunch.data[order], np.array([str(c) for c in bunch.target_names])[bunch.target[order]]
    rows = [r for r in csv.DictReader(open(f"{data}/penguins.csv")) if r["beak_length"]]
    keys = ("beak_length", "beak_depth", "flipper_length", "body_mass")
    yield "penguins", np.array([[float(r[k]) for k in keys] for r in rows]), np.array([r["species"] for r in rows])
    rows = list(csv.DictReader(open(f"{data}/seattle-weather.csv")))
    keys = ("precipitation", "temp_max", "temp_min", "wind")
    X = np.array([[float(r[k]) for k in keys] for r in rows])
    yield "tomorrow's weather", X[:-1], np.array([r["weather"] for r in rows])[1:]


def measures(P, y, skip):
    P, y = np.clip(np.array(P)[skip:], 1e-4 / P[0].size, 1), y[skip:]
    P = P / P.sum(1, keepdims=True)
    return -np.log(P[np.arange(len(y)), y]).mean(), (P.argmax(1) == y).mean()


def ours(X, labels, skip):
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as f:
        f.write(",".join(f"x{k}" for k in range(X.shape[1])) + ",class\n")
        f.writelines(",".join(map(repr, map(float, x))) + f",{label}\n" for x, label in zip(X, labels))
        f.flush()
        run = json.loads(subprocess.run([ttr, "regress", f.name, "--classify", "--warmup", str(skip), "--json"], check=True, capture_output=True, text=True).stdout)
    of = {l["name"]: l["classification"] for l in run["layers"] + [run["baseline"]]}
    best = min((n for n in of if n not in ("mix", "frequencies")), key=lambda n: of[n]["log_loss"])
    return [(n, of[k]["log_loss"], of[k]["accuracy"]) for n, k in (("ttr, mix", "mix"), (f"ttr, best layer: {best}", best), ("class frequencies", "frequencies"))]


def stepwise(X, y, C, skip, **settings):
    model, scaler, P = SGDClassifier(loss="log_loss", random_state=0, **settings), StandardScaler(), [np.full(C, 1 / C)]
    for i in range(len(y)):
        if i > 0:
            P.append(model.predict_proba(scaler.transform(X[i : i + 1]))[0])
        scaler.partial_fit(X[i : i + 1])
        model.partial_fit(scaler.transform(X[i : i + 1]), y[i : i + 1], classes=range(C))
    return measures(P, y, skip)


def refitted(X, y, C, skip):
    P, model, scaler = [], None, None
    for i in range(len(y)):
        if len(set(y[:i])) < C:
            P.append(np.full(C, 1 / C))
            continue
        if i % 10 == 0 or model is None:
            scaler = StandardScaler().fit(X[:i])
            model = LogisticRegression(max_iter=200).fit(scaler.transform(X[:i]), y[:i])
        P.append(model.predict_proba(scaler.transform(X[i : i + 1]))[0])
    return measures(P, y, skip)


def rabbit(X, y, C, skip):
    """Predictions that `vw` writes while it learns are made before the row is learned."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rows", "w") as f:
            f.writelines(f"{c + 1} | " + " ".join(f"{k}:{v}" for k, v in enumerate(x)) + "\n" for x, c in zip(X, y))
        subprocess.run([vw, "-d", f"{folder}/rows", "--oaa", str(C), "--loss_function", "logistic", "--probabilities", "-p", f"{folder}/out", "--quiet"], check=True)
        P = [np.array([float(word.split(":")[1]) for word in line.split()]) for line in open(f"{folder}/out")]
    return measures(P, y, skip)


print("| set | rows, keys, classes | who | log loss | accuracy |\n|---|---|---|---|---|")
for name, X, labels in sets():
    if len(sys.argv) > 2 and name not in sys.argv[2:]:
        continue
    classes = sorted(set(labels))
    y, C, skip = np.array([classes.index(c) for c in labels]), len(classes), X.shape[1] + 2
    lines = ours(X, labels, skip)
    tries = [dict(), *(dict(learning_rate="constant", eta0=e) for e in (0.003, 0.01, 0.03, 0.1, 0.3)), *(dict(learning_rate="invscaling", eta0=e) for e in (0.1, 0.5))]
    scores = [(*stepwise(X, y, C, skip, **t), t) for t in tries]
    lines.append(("SGDClassifier, as it comes", *scores[0][:2]))
    best = min(scores, key=lambda s: s[0])
    lines.append((f"SGDClassifier, best of {len(tries)} settings: " + ", ".join(f"{k}={v}" for k, v in best[2].items()), *best[:2]))
    lines.append(("LogisticRegression, fitted anew every 10 rows", *refitted(X, y, C, skip)))
    if vw:
        lines.append(("Vowpal Wabbit, logistic", *rabbit(X, y, C, skip)))
    for who, loss, accuracy in lines:
        print(f"| {name} | {len(y)}, {X.shape[1]}, {C} | {who} | {loss:.4f} | {accuracy:.4f} |")
