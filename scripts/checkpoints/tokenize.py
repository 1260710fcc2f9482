#!/usr/bin/env python3
"""Byte-level pair encoding once more, plainly, and what `ttr` makes of the same texts.

    scripts/checkpoints/tokenize.py build/ttr

Learns merges from a text, writes tokenizer.json and a GGUF file with them beside a small model, and compares the tokens
of texts with letters, digits, blanks, accents, emoji and bytes that are no UTF-8. Classes of characters are those of
Python's unicodedata; no regular expression is used.
"""
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

import rwkv
from files import write_gguf, write_safetensors
from tokenize_texts import CORPUS, join, learn, split_gpt2, split_qwen2, stand_ins

TEXTS = ["It was the best of times", "  two blanks  and more   ", "we're they'd I'LL don't", "x1234567 y\n\n\n z\t\tq \n",
         "café cafe\u0301 naïve", "日本語 текст 😀!", "trailing   ", "", "a", "\r\n x\r\n\r\n", "<|end|>after <|end|>",
         "no<|end|>blank", "ſtrange ǅ x² ½ ٣٤"]


def encode(text, split, vocabulary, merges, nfc):
    ranks, table, out = {m: r for r, m in enumerate(merges)}, stand_ins(), []
    parts = text.split("<|end|>")
    for j, part in enumerate(parts):
        if j:
            out.append(vocabulary["<|end|>"])
        if nfc:
            part = unicodedata.normalize("NFC", part)
        for piece in split(part):
            word = [table[b] for b in piece.encode()]
            while len(word) > 1:
                pair = min(zip(word, word[1:]), key=lambda p: ranks.get(p, 10 ** 9))
                if pair not in ranks:
                    break
                word = join(word, pair)
            out += [vocabulary[w] for w in word]
    return out


def main():
    program, failures, compared = sys.argv[1], 0, 0
    tensors, _ = rwkv.rwkv_4()
    rng_rows = 600
    tensors = dict(tensors)
    import numpy as np
    rng = np.random.default_rng(1)
    for name in ("emb.weight", "head.weight"):
        tensors[name] = rng.standard_normal((rng_rows, rwkv.D)).astype(np.float32)
    for name, split, nfc in (("gpt-2", split_gpt2, False), ("qwen2", split_qwen2, True)):
        merges = learn(split(CORPUS), 150)
        tokens = list(stand_ins().values()) + ["".join(m) for m in merges]
        vocabulary = {t: i for i, t in enumerate(dict.fromkeys(tokens))}
        end = len(vocabulary)
        pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                   r"\s+(?!\S)|\s+")
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": name == "gpt-2"}
        tree = {"version": "1.0", "normalizer": {"type": "NFC"} if nfc else None,
                "added_tokens": [{"id": end, "content": "<|end|>", "special": True}],
                "pre_tokenizer": byte_level if name == "gpt-2" else {
                    "type": "Sequence", "pretokenizers": [
                        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                        byte_level]},
                "model": {"type": "BPE", "vocab": vocabulary,
                          "merges": [" ".join(m) for m in merges] if nfc else [list(m) for m in merges]},
                "decoder": {"type": "ByteLevel"}}
        with tempfile.TemporaryDirectory() as folder:
            write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
            with open(os.path.join(folder, "tokenizer.json"), "w") as f:
                json.dump(tree, f)
            t6, _ = rwkv.rwkv_6()
            t6 = dict(t6)
            for big in ("emb.weight", "head.weight"):
                t6[big] = tensors[big]
            keys, g = rwkv.gguf_6(t6)
            listed = list(vocabulary) + ["<|end|>"]
            keys.update({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name, "tokenizer.ggml.tokens": listed,
                         "tokenizer.ggml.token_type": [1] * len(vocabulary) + [3],
                         "tokenizer.ggml.merges": [" ".join(m) for m in merges]})
            gguf = os.path.join(folder, "other", "model.gguf")
            os.makedirs(os.path.dirname(gguf))
            write_gguf(gguf, keys, g)
            for text in TEXTS:
                if not text:
                    continue
                expected = encode(text, split, {**vocabulary, "<|end|>": end}, merges, nfc)
                for model in (folder, gguf):
                    run = subprocess.run([program, "logits", model, "--text", text, "--json"], capture_output=True, text=True)
                    compared += 1
                    got = json.loads(run.stdout)["tokens"] if run.returncode == 0 else run.stderr
                    if got != expected:
                        failures += 1
                        print(f"FAILED {name} {os.path.basename(model)} {text!r}\n  got      {got}\n  expected {expected}")
    print(f"{compared - failures} passed, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
