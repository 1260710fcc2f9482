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

CORPUS = ("It was the best of times, it was the worst of times; we're here, they'd gone, I'll see. "
          "Numbers 123 4567 and   blanks\n\nNaïve café, Ünïcode — 日本語 текст. The end of the times.\n") * 3
TEXTS = ["It was the best of times", "  two blanks  and more   ", "we're they'd I'LL don't", "x1234567 y\n\n\n z\t\tq \n",
         "café cafe\u0301 naïve", "日本語 текст 😀!", "trailing   ", "", "a", "\r\n x\r\n\r\n", "<|end|>after <|end|>",
         "no<|end|>blank", "ſtrange ǅ x² ½ ٣٤"]


def stand_ins():
    table, extra = {}, 256
    for b in range(256):
        keep = 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE
        table[b] = chr(b if keep else extra)
        extra += not keep
    return table


def kind(c):
    if c.isspace() and c not in "\x1c\x1d\x1e\x1f":
        return "s"
    category = unicodedata.category(c)
    return "L" if category[0] == "L" else "N" if category[0] == "N" else "p"


def split_gpt2(text):
    """'s 't 're 've 'm 'll 'd, then optional blank + letters | digits | others, then blanks but the last, then blanks."""
    i, out = 0, []
    while i < len(text):
        end = next((i + len(s) for s in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d") if text.startswith(s, i)), None)
        if end is None:
            start = i + (text[i] == " ")
            if start < len(text) and kind(text[start]) != "s":
                end = start
                while end < len(text) and kind(text[end]) == kind(text[start]):
                    end += 1
            else:
                end = i
                while end < len(text) and kind(text[end]) == "s":
                    end += 1
                if end < len(text) and end - i > 1:
                    end -= 1
        out.append(text[i:end])
        i = end
    return out


def split_qwen2(text):
    i, out = 0, []
    k = lambda j: kind(text[j]) if j < len(text) else ""
    while i < len(text):
        end = None
        for s in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
            # (?i) folds characters too: the long s is an s
            if text[i:i + len(s)].casefold().replace("ſ", "s") == s and len(text[i:i + len(s)]) == len(s):
                end = i + len(s)
                break
        if end is None:  # [^\r\n\p{L}\p{N}]?\p{L}+
            start = i + (text[i] not in "\r\n" and k(i) not in "LN")
            if k(start) == "L":
                end = start
                while k(end) == "L":
                    end += 1
        if end is None and k(i) == "N":
            end = i + 1
        if end is None:  # ' '?[^\s\p{L}\p{N}]+[\r\n]*
            start = i + (text[i] == " ")
            if k(start) == "p":
                end = start
                while k(end) == "p":
                    end += 1
                while end < len(text) and text[end] in "\r\n":
                    end += 1
        if end is None:  # \s*[\r\n]+ : the last line break of the blanks
            stop = i
            while k(stop) == "s":
                stop += 1
            breaks = [j for j in range(i, stop) if text[j] in "\r\n"]
            if breaks:
                end = breaks[-1] + 1
            else:
                end = stop - 1 if stop < len(text) and stop - i > 1 else stop
        out.append(text[i:end])
        i = end
    return out


def learn(pieces, count):
    words = {}
    table = stand_ins()
    for piece in pieces:
        word = tuple(table[b] for b in piece.encode())
        words[word] = words.get(word, 0) + 1
    merges = []
    while len(merges) < count:
        pairs = {}
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + n
        if not pairs:
            break
        best = max(sorted(pairs), key=pairs.get)
        merges.append(best)
        words = {tuple(join(list(word), best)): n for word, n in words.items()}
    return merges


def join(word, pair):
    i = 0
    while i + 1 < len(word):
        if (word[i], word[i + 1]) == pair:
            word[i:i + 2] = ["".join(pair)]
        i += 1
    return word


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
