"""How long the keys of trained models are, by what they are keys of:   keys.py NAME=FOLDER ...

A folder is one of `ttr train --out`, of a model with one layer whose convolution of two taps sees the keys alone. In a
sequence of mqar the token before a value says what the pair is: after a cue it is one that is asked for later, after a
response it is "response, next cue", which nobody asks for. A table in markdown: root mean square lengths, and what share
of the numbers was negative before the activation, over 500 pairs of tokens drawn for each kind. The exit code is 1 unless
keys for what is asked for are 1.5 times as long as the others where NAME ends with "silu", and at most 1.2 times elsewhere.
"""

import json
import math
import random
import struct
import sys


def tensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    settings = dict(line.split(" = ", 1) for line in header["__metadata__"]["config"].splitlines() if " = " in line)
    return settings, {
        name.removeprefix("model."): struct.unpack(
            f"<{math.prod(one['shape'])}f", data[one["data_offsets"][0] : one["data_offsets"][1]]
        )
        for name, one in header.items()
        if name != "__metadata__"
    }


class Keys:
    def __init__(self, folder):
        settings, of = tensors(f"{folder}/model.safetensors")
        self.width, self.vocabulary = int(settings["width"]), int(settings["vocabulary"])
        assert settings["heads"] == "1" and "conv=2" in settings["stack"] and "conv_on=k" in settings["stack"]
        self.silu = "conv_act=none" not in settings["stack"]
        self.eps = float(settings["norm_eps"])
        self.embedding, self.norm = of["embedding"], of["blocks.0.mixer.norm"]
        self.matrix, self.taps = of["blocks.0.mixer.in"], of["blocks.0.mixer.taps"]
        self.rows = {}

    def projected(self, token):  # n W_k: the convolved columns are the first
        if token not in self.rows:
            d = self.width
            row = self.embedding[token * d : (token + 1) * d]
            scale = 1 / math.sqrt(sum(x * x for x in row) / d + self.eps)
            n = [x * scale * w for x, w in zip(row, self.norm)]
            all_columns = len(self.matrix) // d
            self.rows[token] = [sum(n[i] * self.matrix[i * all_columns + c] for i in range(d)) for c in range(d)]
        return self.rows[token]

    def before_activation(self, before, now):
        rows = zip(self.projected(before), self.projected(now))
        return [self.taps[2 * c] * old + self.taps[2 * c + 1] * new for c, (old, new) in enumerate(rows)]

    def kinds(self):
        """After a cue, a response and a filler: root mean square length, share of negative numbers before the activation."""
        draw = random.Random(1)
        half = self.vocabulary // 2
        cue = lambda: draw.randrange(1, half)
        response = lambda: draw.randrange(half, self.vocabulary)
        for first, second in (cue, response), (response, cue), (lambda: 0, lambda: 0):
            numbers = [x for _ in range(500) for x in self.before_activation(first(), second())]
            squares = sum((x / (1 + math.exp(-x)) if self.silu else x) ** 2 for x in numbers)
            yield math.sqrt(squares / 500), sum(x < 0 for x in numbers) / len(numbers)


ratios = {}
print("# Root mean square length of keys\n")
print("| layer, activation | after a cue: asked for | after a response: not asked for | filler | cue / response |", end="")
print(" negative before the activation: cue | response |\n|---|---|---|---|---|---|---|")
for argument in sys.argv[1:]:
    label, folder = argument.split("=", 1)
    (wanted, low), (other, high), (filler, _) = Keys(folder).kinds()
    ratios[label] = wanted / other
    print(f"| {label} | {wanted:.2f} | {other:.2f} | {filler:.2f} | {ratios[label]:.1f} | {low:.2f} | {high:.2f} |")
wrong = [label for label, ratio in ratios.items() if (ratio < 1.5 if label.endswith("silu") else ratio > 1.2)]
sys.exit(f"keys.py: not as expected: {'; '.join(wrong)}" if wrong else 0)
