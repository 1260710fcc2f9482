"""What the evaluations of small checkpoints share: plain numpy in double, token after token.

Nothing here knows how the library computes: the formulas are those of the papers and of the published code
(docs/models.md), written as loops over tokens.
"""
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def layer_norm(x, w, b, eps):
    return (x - x.mean()) / np.sqrt(x.var() + eps) * w + b


def rms_norm(x, w, eps):
    return x / np.sqrt((x * x).mean() + eps) * w


def heads_norm(x, heads, w, eps):
    """RMS of each head with one weight for all of them."""
    return np.concatenate([rms_norm(h, w, eps) for h in x.reshape(heads, -1)])


def group_norm(x, heads, w, b, eps):
    parts = x.reshape(heads, -1)
    return np.concatenate([(h - h.mean()) / np.sqrt(h.var() + eps) for h in parts]) * w + b


def unit(x, heads):
    parts = x.reshape(heads, -1)
    return np.concatenate([h / np.sqrt((h * h).sum() + 1e-6) for h in parts])


def rotate(x, heads, turned, base, position):
    """Rotary embedding of the first `turned` numbers of each head, pairs (i, i + turned / 2)."""
    y = x.reshape(heads, -1).copy()
    half = turned // 2
    angle = position * base ** (-2 * np.arange(half) / turned)
    a, b = y[:, :half].copy(), y[:, half:turned].copy()
    y[:, :half] = a * np.cos(angle) - b * np.sin(angle)
    y[:, half:turned] = b * np.cos(angle) + a * np.sin(angle)
    return y.reshape(-1)


class Convolution:
    """Depthwise, causal; taps [C, W] oldest first."""

    def __init__(self, taps, bias=None):
        self.taps, self.bias = taps, bias
        self.past = [np.zeros(taps.shape[0]) for _ in range(taps.shape[1])]

    def __call__(self, x):
        self.past = self.past[1:] + [x]
        y = sum(self.taps[:, i] * past for i, past in enumerate(self.past))
        return y if self.bias is None else y + self.bias


class Attention:
    """Softmax over all tokens so far, or the newest `window`; grouped heads."""

    def __init__(self, heads, key_heads, window=None):
        self.heads, self.key_heads, self.window, self.keys, self.values = heads, key_heads, window, [], []

    def __call__(self, q, k, v):
        self.keys.append(k.reshape(self.key_heads, -1))
        self.values.append(v.reshape(self.key_heads, -1))
        first = 0 if self.window is None else max(0, len(self.keys) - self.window)
        out = []
        for h, one in enumerate(q.reshape(self.heads, -1)):
            g = h // (self.heads // self.key_heads)
            scores = np.array([one @ key[g] for key in self.keys[first:]]) / np.sqrt(one.size)
            p = np.exp(scores - scores.max())
            p /= p.sum()
            out.append(sum(weight * value[g] for weight, value in zip(p, self.values[first:])))
        return np.concatenate(out)
