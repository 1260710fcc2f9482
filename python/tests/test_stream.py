"""Stream and OnlineRegressor: against the program, and on their own."""

import json
import os
import pickle
import subprocess
import tempfile
import unittest

import numpy as np

import ttr

PROGRAM = os.environ.get("TTR_PROGRAM")
LAYERS = ["nlms", "rls", "rls:decay=0.98,ridge=1", "kalman", "softmax-attention", "gated-deltanet", "hedgehog", "rfa"]
LAYERS += ["abc", "deltaproduct", "dijiang", "window-rls", "decay(0.9) / linear / exact(ridge=0.1)"]


def data(rows=150, keys=3, values=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, keys)) * [1.0, 50.0, 0.02][:keys] + [0.0, 100.0, 3.0][:keys]
    Y = X @ rng.standard_normal((keys, values)) + 0.1 * rng.standard_normal((rows, values)) + 7
    return X, Y


class AgainstTheProgram(unittest.TestCase):
    """The same numbers as `ttr regress`, for every kind of layer, with and without units."""

    def regress(self, X, Y, layer, *options):
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "data.csv")
            names = [f"x{i}" for i in range(X.shape[1])] + [f"y{i}" for i in range(Y.shape[1])]
            with open(table, "w") as file:
                file.write(",".join(names) + "\n")
                for row in np.concatenate([X, Y], 1):
                    file.write(",".join(repr(float(x)) for x in row) + "\n")
            out = os.path.join(folder, "out.csv")
            command = [PROGRAM, "regress", table, "--keys", f"1-{X.shape[1]}"]
            command += ["--values", f"{X.shape[1] + 1}-{X.shape[1] + Y.shape[1]}", "--layer", layer, "--out", out, "--json"]
            done = subprocess.run(command + list(options), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out) as file:
                head, *lines = file.read().splitlines()
            table = np.array([[float(x) for x in line.split(",")] for line in lines])
            return json.loads(done.stdout), head.split(","), table

    def setUp(self):
        self.assertTrue(PROGRAM, "set TTR_PROGRAM to the program to compare with")

    def test_predictions(self):
        X, Y = data()
        for layer in LAYERS:
            for raw in (False, True):
                with self.subTest(layer=layer, raw=raw):
                    about, _, table = self.regress(X, Y, layer, *(["--raw"] if raw else []))
                    model = ttr.OnlineRegressor(layer, standardize=not raw)
                    got = model.learn_predict(X, Y)
                    self.assertEqual(about["layers"][0]["recipe"], model.recipe_)
                    expected = table[:, 1 : 1 + Y.shape[1]]
                    scale = np.abs(Y).max()
                    np.testing.assert_allclose(got / scale, expected / scale, atol=1e-9)

    def test_many_keys(self):
        # From 17 keys on the ridge of a name is renewed in turn; a recipe is what it says.
        rng = np.random.default_rng(3)
        X = rng.standard_normal((160, 24))
        Y = X @ rng.standard_normal((24, 1)) + rng.standard_normal((160, 1))
        for layer in ("rls:decay=0.98,ridge=1", "rls:decay=0.9,ridge=3", "decay(0.98) / linear / exact(ridge=1)"):
            with self.subTest(layer=layer):
                about, _, table = self.regress(X, Y, layer, "--interval", "0.9")
                model = ttr.OnlineRegressor(layer)
                np.testing.assert_allclose(model.learn_predict(X, Y), table[:, 1:2], atol=1e-8 * np.abs(Y).max())
                self.assertEqual(about["layers"][0]["recipe"], model.recipe_)
                self.assertEqual(about["layers"][0]["changes"], model.stream_.changes)
                self.assertEqual("renewed" in "".join(model.stream_.changes), "/" not in layer)
                self.assertEqual((model.interval_, about["layers"][0]["interval"]["kind"]), ("exact", "exact"))
                fitted = ttr.OnlineRegressor(layer).fit(X[:-1], Y[:-1])
                lower, upper = fitted.predict_interval(X[-1:])
                np.testing.assert_allclose([lower[0, 0], upper[0, 0]], table[-1, 2:4], atol=1e-6 * np.abs(Y).max())

    def test_intervals(self):
        X, Y = data(values=2, rows=90)
        kinds = {"nlms": "conformal", "rls": "exact", "rls:decay=0.98,ridge=1": "exact", "kalman": "exact"}
        kinds.update({"window-rls:window=20": "exact", "decay(0.95) / linear / exact(ridge=0.5, fading)": "exact"})
        for layer, kind in kinds.items():
            with self.subTest(layer):
                about, _, table = self.regress(X, Y, layer, "--interval", "0.9")
                self.assertEqual(about["layers"][0]["interval"]["kind"], kind)
                expected, got = table[1:, [2, 3, 5, 6]], []  # a prediction, its lower and its upper bound; the next
                model = ttr.OnlineRegressor(layer, level=0.9)
                for row in range(len(X)):
                    if row > 0:
                        lower, upper = model.predict_interval(X[row : row + 1])
                        got.append([lower[0, 0], upper[0, 0], lower[0, 1], upper[0, 1]])
                    model.partial_fit(X[row : row + 1], Y[row : row + 1])
                self.assertEqual(model.interval_, kind)
                got = np.array(got)
                self.assertTrue(np.isfinite(got[-1]).all())
                np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
                finite = np.isfinite(got)
                np.testing.assert_allclose(got[finite], expected[finite], atol=1e-7 * np.abs(Y).max())
                # In one call, and after a pickle, they are the same.
                whole = pickle.loads(pickle.dumps(ttr.OnlineRegressor(layer, level=0.9).fit(X[:-1], Y[:-1])))
                lower, upper = whole.predict_interval(X[-1:])
                last = [lower[0, 0], upper[0, 0], lower[0, 1], upper[0, 1]]
                np.testing.assert_allclose(last, got[-1], atol=1e-9 * np.abs(Y).max())


class Streams(unittest.TestCase):
    def test_rows_one_by_one_are_the_same(self):
        X, Y = data(40)
        for layer in LAYERS:
            with self.subTest(layer):
                whole, single = ttr.Stream(layer, 3, 2), ttr.Stream(layer, 3, 2)
                expected = whole.learn(X, Y)
                got = np.concatenate([single.learn(X[r : r + 1], Y[r : r + 1]) for r in range(len(X))])
                # The same bits, but for lists of pairs, whose blocks of a call are cut otherwise.
                bound = 1e-13 * np.abs(Y).max() if whole.plan.keeps_pairs else 0
                np.testing.assert_allclose(got, expected, rtol=0, atol=bound)
                np.testing.assert_allclose(single.predict(X[:5]), whole.predict(X[:5]), rtol=0, atol=bound)

    def test_asking_leaves_no_trace(self):
        X, Y = data(30)
        a, b = ttr.Stream("rls", 3, 2), ttr.Stream("rls", 3, 2)
        a.learn(X[:20], Y[:20]), b.learn(X[:20], Y[:20])
        a.predict(X)
        np.testing.assert_array_equal(a.learn(X[20:], Y[20:]), b.learn(X[20:], Y[20:]))

    def test_pickle(self):
        X, Y = data(60)
        for layer in ("rls", "softmax-attention", "nlms"):
            stream = ttr.Stream(layer, 3, 2)
            stream.learn(X[:40], Y[:40])
            again = pickle.loads(pickle.dumps(stream))
            np.testing.assert_array_equal(again.predict(X[40:]), stream.predict(X[40:]))
            np.testing.assert_array_equal(again.learn(X[40:], Y[40:]), stream.learn(X[40:], Y[40:]))

    def test_the_rule_of_a_ridge_is_kept(self):
        rng = np.random.default_rng(5)
        X, Y = rng.standard_normal((60, 20)), rng.standard_normal((60, 1))
        stream = ttr.Stream("rls:decay=0.98,ridge=1", 20)
        stream.learn(X[:40], Y[:40])
        self.assertEqual(stream.rows, 40)
        again = pickle.loads(pickle.dumps(stream))
        np.testing.assert_array_equal(again.predict(X[40:]), stream.predict(X[40:]))
        np.testing.assert_array_equal(again.learn(X[40:], Y[40:]), stream.learn(X[40:], Y[40:]))
        # One that was kept before there was such a rule goes on as a factorisation per row.
        exact = ttr.Stream("decay(0.98) / linear / exact(ridge=1)", 20)
        exact.learn(X[:40], Y[:40])
        kept = {**exact.__getstate__(), "layer": stream.layer}
        del kept["ridge"]
        old = ttr.Stream.__new__(ttr.Stream)
        old.__setstate__(kept)
        np.testing.assert_array_equal(old.learn(X[40:], Y[40:]), exact.learn(X[40:], Y[40:]))

    def test_errors(self):
        with self.assertRaisesRegex(ttr.Error, "did you mean 'rls'"):
            ttr.Stream("rlss", 3)
        with self.assertRaisesRegex(ttr.Error, "per row"):
            ttr.Stream("rls", 3).learn(np.zeros((4, 2)), np.zeros((4, 1)))
        with self.assertRaises(ttr.Error):
            ttr.Stream("rms-norm", 3)


class Regressor(unittest.TestCase):
    def test_parts_are_the_whole(self):
        X, Y = data(200, values=1)
        whole = ttr.OnlineRegressor("rls").fit(X, Y[:, 0])
        parts = ttr.OnlineRegressor("rls")
        for begin, end in ((0, 1), (1, 10), (10, 64), (64, 65), (65, 200)):
            parts.partial_fit(X[begin:end], Y[begin:end, 0])
        np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=0, atol=1e-9)
        self.assertGreater(whole.score(X, Y[:, 0]), 0.99)
        again = whole.fit(X[:50], Y[:50, 0])
        np.testing.assert_array_equal(again.predict(X), ttr.OnlineRegressor("rls").fit(X[:50], Y[:50, 0]).predict(X))

    def test_river(self):
        X, Y = data(80, values=1)
        model, rows = ttr.OnlineRegressor("rls"), ttr.OnlineRegressor("rls")
        expected = rows.learn_predict(X, Y[:, 0])
        for r in range(len(X)):
            x = {"a": X[r, 0], "b": X[r, 1], "c": X[r, 2]}
            self.assertAlmostEqual(model.predict_one(x), expected[r], places=6)
            model.learn_one(dict(reversed(list(x.items()))) if r else x, Y[r, 0])
        with self.assertRaisesRegex(ttr.Error, "the first one had"):
            model.predict_one({"a": 1.0})

    def test_parameters(self):
        model = ttr.OnlineRegressor(layer="kalman", level=0.5)
        self.assertEqual(model.get_params()["layer"], "kalman")
        model.set_params(layer="nlms")
        self.assertEqual(model.layer, "nlms")
        with self.assertRaises(ttr.Error):
            ttr.OnlineRegressor(level=2.0).fit(*data(values=1))
        with self.assertRaisesRegex(ttr.Error, "'auto'"):
            ttr.OnlineRegressor(interval="exactly").fit(*data(values=1))
        self.assertEqual(ttr.OnlineRegressor(interval="conformal").fit(*data(values=1)).interval_, "conformal")

    def test_coverage(self):
        X, Y = data(1500, values=1, seed=4)
        model, inside, asked = ttr.OnlineRegressor("rls", level=0.8), 0, 0
        for begin in range(0, 1500, 10):
            if begin >= 100:
                lower, upper = model.predict_interval(X[begin : begin + 10])
                inside += ((lower <= Y[begin : begin + 10, 0]) & (Y[begin : begin + 10, 0] <= upper)).sum()
                asked += 10
            model.partial_fit(X[begin : begin + 10], Y[begin : begin + 10, 0])
        self.assertLess(abs(inside / asked - 0.8), 0.04)


if __name__ == "__main__":
    unittest.main()
