"""Published models from Python, and what holds for every architecture: bits, pieces of prompts, states.

TTR_CHECKPOINTS is a folder that scripts/checkpoints/check.py --write has filled."""

import json
import os
import sys
import tempfile
import unittest

import numpy as np

import ttr

FOLDER = os.environ.get("TTR_CHECKPOINTS", "")


def cases():
    for name in sorted(os.listdir(FOLDER)):
        folder = os.path.join(FOLDER, name)
        gguf = os.path.join(folder, "model.gguf")
        with open(os.path.join(folder, "expected.json")) as file:
            expected = json.load(file)
        settings = {"group_norm_eps": 1e-5} if name == "rwkv-5-eps" else None
        yield name, gguf if os.path.exists(gguf) else folder, settings, expected["tokens"], np.array(expected["logits"])


class EveryArchitecture(unittest.TestCase):
    def test_all(self):
        count = 0
        for name, path, settings, tokens, expected in cases():
            with self.subTest(name):
                self.one(path, settings, tokens, expected)
                count += 1
        self.assertEqual(count, 46)

    def one(self, path, settings, tokens, expected):
        one = ttr.load_model(path, threads=1, settings=settings)
        two = ttr.load_model(path, threads=2, piece=7, settings=settings)
        largest = np.abs(expected).max()
        self.assertLess(np.abs(one.logits(tokens) - expected).max(), 1e-4 * largest)
        # Fixed bits: one thread and all tokens in a call, two threads and other cuts.
        whole = one.logits(tokens, fixed=True)
        text = two.text()
        cuts = [two.logits(part, text, fixed=True) for part in np.split(np.array(tokens), [1, 4, 15])]
        np.testing.assert_array_equal(np.concatenate(cuts), whole)
        # Among others, who come and go, token by token.
        text, others = two.text(), [two.text() for _ in range(4)]
        for t, token in enumerate(tokens):
            company = others[: t % 5]
            place = t % (len(company) + 1)
            texts = company[:place] + [text] + company[place:]
            given = [(token + 3 * i) % one.vocabulary for i in range(len(texts))]
            given[place] = token
            np.testing.assert_array_equal(two.step(texts, given)[place], whole[t])
        # A prompt in any pieces is the same up to rounding.
        for piece in (1, 2, 3, 5, 16, 64):
            model = ttr.load_model(path, threads=1 + piece % 2, piece=piece, settings=settings)
            error = np.abs(model.logits(tokens) - whole).max()
            self.assertLess(error, 2e-5 * largest, f"pieces of {piece}")


    def test_long(self):
        """Six hundred tokens, over the pieces of 256 that a prompt goes in: fixed bits by any cut, blocks up to rounding.

        What is rounded adds up over a text: kda differs by 2.8e-5 of the largest here (in double by 4e-14), so that the limit
        is that of floats beside the plain evaluation."""
        for name, path, settings, _, _ in cases():
            with self.subTest(name):
                model = ttr.load_model(path, threads=2, settings=settings)
                tokens = np.random.default_rng(3).integers(0, model.vocabulary, 600)
                whole = model.logits(tokens, fixed=True)
                text = model.text()
                cuts = [model.logits(part, text, fixed=True) for part in np.split(tokens, [1, 255, 256, 300, 557])]
                np.testing.assert_array_equal(np.concatenate(cuts), whole)
                largest, short = np.abs(whole).max(), ttr.load_model(path, threads=1, piece=100, settings=settings)
                for other, how in ((model, "pieces of 256"), (short, "pieces of 100")):
                    self.assertLess(np.abs(other.logits(tokens) - whole).max(), 1e-4 * largest, how)
                text = model.text()
                model.prefill(text, tokens[:300])
                self.assertLess(np.abs(model.prefill(text, tokens[300:]) - whole[-1]).max(), 1e-4 * largest, "300 and 300")


class Edges(unittest.TestCase):
    """TTR_EDGES is a folder that scripts/checkpoints/edges.py has filled."""

    def model(self, name):
        return ttr.load_model(os.path.join(os.environ["TTR_EDGES"], name), threads=1)

    def test_no_numbers(self):
        for name in ("says-nan", "says-inf", "says-least-all"):
            for temperature in (0, 1):
                with self.assertRaisesRegex(ttr.Error, "are not numbers"):
                    self.model(name).generate([1, 2], tokens=2, temperature=temperature)
        self.assertNotIn(7, self.model("says-least").generate([1, 2], tokens=300, temperature=5, seed=1))

    def test_ends(self):
        for name in ("config", "list", "generation", "name", "object"):
            self.assertEqual(self.model("ends-" + name).generate("hi", tokens=3, temperature=0), "")
        self.assertEqual(len(self.model("ends-not").generate([1], tokens=3, temperature=0)), 3)

    def test_special(self):
        model = self.model("chat")
        begin, start = model.encode("<|im_start|>")
        self.assertEqual(model.encode("<|im_start|>", beginning=False), [start])
        self.assertNotIn(start, model.encode("<|im_start|>", special=False))
        self.assertNotIn(begin, model.encode("<|im_start|>", special=False))

    def test_refused(self):
        with self.assertRaisesRegex(ttr.Error, "'nothing' is none that rwkv-4 reads"):
            ttr.load_model(os.path.join(os.environ["TTR_EDGES"], "chat"), settings={"nothing": 1})
        model = self.model("unknown-tokenizer")
        self.assertEqual(len(model.generate([1, 2], tokens=2)), 2)
        with self.assertRaisesRegex(ttr.Error, "'Unigram' is not supported"):
            model.encode("hello")


class Texts(unittest.TestCase):
    def setUp(self):
        self.model = ttr.load_model(os.path.join(FOLDER, "rwkv-7"), rewind=3)

    def test_rewind_copy_save(self):
        model, tokens = self.model, [5, 1, 30, 7, 7, 0]
        text = model.text()
        model.prefill(text, tokens, fixed=True)
        again = text.copy()
        after = model.step([text], [9])
        model.step([again], [2]), model.step([again], [4])
        self.assertEqual((len(again), again.rewindable), (8, 3))
        np.testing.assert_array_equal(model.step([again.rewind(2)], [9]), after)
        with self.assertRaisesRegex(ttr.Error, "can take back"):
            again.rewind(4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.safetensors")
            text.save(path)
            other = model.text().load(path)
            self.assertEqual(len(other), 7)
            np.testing.assert_array_equal(model.step([other], [3]), model.step([text], [3]))
            with self.assertRaises(ttr.Error):
                model.text().load(os.path.join(folder, "nothing"))
        self.assertEqual(len(text.reset()), 0)

    def test_generate(self):
        first = self.model.generate([1, 2, 3], tokens=10, seed=4)
        self.assertEqual(first, self.model.generate([1, 2, 3], tokens=10, seed=4))
        self.assertEqual(len(first), 10)
        greedy = self.model.generate([1, 2, 3], tokens=5, temperature=0)
        text, token = self.model.text(), None
        logits = self.model.prefill(text, [1, 2, 3])
        for token in greedy:
            self.assertEqual(token, int(logits.argmax()))
            logits = self.model.step([text], [token])[0]

    def test_activations(self):
        path = os.path.join(FOLDER, "rwkv-7")  # weights of f32: nothing is rounded
        rounded = ttr.load_model(path, activations="rounded")
        np.testing.assert_array_equal(rounded.logits([1, 2, 3]), self.model.logits([1, 2, 3]))
        with self.assertRaisesRegex(ValueError, "'exact' or 'rounded'"):
            ttr.load_model(path, activations="half")

    def test_refused(self):
        model = self.model
        self.assertIn("rwkv-7", repr(model))
        for call, sentence in (
            (lambda: ttr.load_model("nothing"), "there is no file or folder"),
            (lambda: ttr.load_model(os.path.join(FOLDER, "rwkv-7"), threads=-3), "threads is"),
            (lambda: model.encode("a"), "without a tokenizer"),
            (lambda: model.prefill(model.text(), []), "at least one token"),
            (lambda: model.prefill(model.text(), [99]), "is not one of the"),
            (lambda: model.prefill(ttr.load_model(os.path.join(FOLDER, "rwkv-4")).text(), [1]), "another model"),
            (lambda: model.step([model.text()], [1, 2]), "one for each"),
            (lambda: model.generate([1], temperature=-1), "temperature"),
        ):
            with self.assertRaisesRegex(ttr.Error, sentence):
                call()
        text = model.text()
        with self.assertRaisesRegex(ttr.Error, "twice"):
            model.step([text, text], [1, 1])


if not FOLDER:
    sys.exit("set TTR_CHECKPOINTS to a folder of scripts/checkpoints/check.py --write")
if __name__ == "__main__":
    unittest.main()
