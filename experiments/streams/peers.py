"""One-step errors of other programs on the series that `ttr regress` runs on, on the same rows and keys.

    /usr/bin/python3 peers.py FILE COLUMN LAGS   ->   {"scikit-learn SGD": 12.3, ...}

Every row is predicted from the LAGS values before it by a model that has seen earlier rows only, with an intercept and with
columns scaled by earlier rows; the first LAGS + 2 predictions are not scored. Nothing is tuned: defaults, as in ttr's column.
"""
import csv
import json
import sys

import numpy as np
from sklearn.linear_model import PassiveAggressiveRegressor, Ridge, SGDRegressor
from sklearn.preprocessing import StandardScaler
from statsmodels.regression.recursive_ls import RecursiveLS


def pairs_of(file, column, lags):
    with open(file) as rows:
        series = np.array([float(row[column]) for row in csv.DictReader(rows)])
    keys = np.stack([series[i : len(series) - lags + i] for i in range(lags)], axis=1)[:, ::-1]
    return keys, series[lags:]


def online(model, keys, values):
    """predict, then learn; keys and values in units of earlier rows."""
    scale, errors = StandardScaler(), []
    mean, squares = 0.0, 0.0
    for t, (x, y) in enumerate(zip(keys, values)):
        deviation = np.sqrt(squares / t) if t > 1 and squares > 0 else 1.0
        scale.partial_fit(x[None])
        z = scale.transform(x[None])
        errors.append(y - (mean + deviation * model.predict(z)[0] if t > 1 else mean))
        before = y - mean
        mean += before / (t + 1)
        squares += before * (y - mean)
        deviation = np.sqrt(squares / (t + 1)) if squares > 0 else 1.0
        model.partial_fit(z, [(y - mean) / deviation])
    return np.array(errors)


def recursive_least_squares(keys, values):
    design = np.column_stack([np.ones(len(keys)), keys])
    result = RecursiveLS(values, design).fit()
    return result.filter_results.forecasts_error[0]


def refitted_ridge(keys, values):
    """scikit-learn's Ridge, fitted anew before every row (every tenth of long series) on all rows before it."""
    errors, every, model = [], 1 if len(keys) < 1000 else 10, None
    for t, (x, y) in enumerate(zip(keys, values)):
        if t >= 2 and (model is None or t % every == 0):
            scale = StandardScaler().fit(keys[:t])
            model = Ridge(alpha=1.0).fit(scale.transform(keys[:t]), values[:t])
        errors.append(y - (model.predict(scale.transform(x[None]))[0] if model else values[:t].mean() if t else 0.0))
    return np.array(errors)


def main():
    file, column, lags = sys.argv[1], sys.argv[2], int(sys.argv[3])
    keys, values = pairs_of(file, column, lags)
    results = {
        "scikit-learn SGD": online(SGDRegressor(random_state=0), keys, values),
        "scikit-learn passive-aggressive": online(PassiveAggressiveRegressor(random_state=0), keys, values),
        "scikit-learn ridge, refitted": refitted_ridge(keys, values),
        "statsmodels recursive LS": recursive_least_squares(keys, values),
    }
    print(json.dumps({name: float(np.mean(errors[lags + 2 :] ** 2)) for name, errors in results.items()}))


main()
