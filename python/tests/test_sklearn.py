"""OnlineRegressor in scikit-learn's own checks, with pandas, pickled, cloned, in a pipeline and a search."""

import pickle
import unittest
import warnings

import numpy as np
import pandas
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

import ttr


def data(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    return X, X @ [1.0, -2.0, 0.5] + 3 + 0.1 * rng.standard_normal(rows)


class Sklearn(unittest.TestCase):
    def test_check_estimator(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for layer in ("rls", "nlms", "rls:decay=0.999,ridge=1", "kalman"):
                with self.subTest(layer):
                    check_estimator(ttr.OnlineRegressor(layer))
            ran = [name for _, check in check_estimator(ttr.OnlineRegressor(), generate_only=True) for name in [check.func.__name__]]
        self.assertGreater(len(ran), 30)

    def test_pandas_in_and_out(self):
        X, y = data()
        frame = pandas.DataFrame(X, columns=["a", "b", "c"], index=pandas.date_range("2024-01-01", periods=len(X)))
        series = pandas.Series(y, index=frame.index, name="load")
        model = ttr.OnlineRegressor().fit(frame, series)
        answer = model.predict(frame)
        self.assertIsInstance(answer, pandas.Series)
        self.assertEqual(answer.name, "load")
        self.assertTrue((answer.index == frame.index).all())
        lower, upper = model.predict_interval(frame)
        self.assertTrue(((lower < answer) & (answer < upper)).all())
        np.testing.assert_array_equal(answer.to_numpy(), ttr.OnlineRegressor().fit(X, y).predict(X))
        both = pandas.DataFrame({"load": y, "price": -y}, index=frame.index)
        answers = ttr.OnlineRegressor().fit(frame, both).predict(frame)
        self.assertEqual(list(answers.columns), ["load", "price"])
        self.assertEqual(list(model.feature_names_in_), ["a", "b", "c"])

    def test_clone_pickle_pipeline_search(self):
        X, y = data()
        model = ttr.OnlineRegressor("kalman", level=0.8).fit(X, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        again.partial_fit(X, y), model.partial_fit(X, y)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        self.assertEqual(clone(model).get_params(), model.get_params())
        pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), ttr.OnlineRegressor("rls"))
        self.assertGreater(pipeline.fit(X, y).score(X, y), 0.99)
        search = GridSearchCV(ttr.OnlineRegressor(), {"layer": ["rls", "nlms"]}, cv=3).fit(X, y)
        self.assertEqual(search.best_params_["layer"], "rls")


if __name__ == "__main__":
    unittest.main()
