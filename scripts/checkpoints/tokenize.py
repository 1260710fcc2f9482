#!/usr/bin/env python3
"""Tokenizers once more, plainly, and what `ttr` makes of the same texts.

    scripts/checkpoints/tokenize.py build/ttr

Byte-level pairs, pairs of characters with bytes for the rest (SentencePiece), and the longest tokens of RWKV's world models:
learns merges from a text, writes them as tokenizer.json, as lines or into a GGUF file beside a small model, and compares the tokens
of texts with letters, digits, blanks, accents and emoji.
"""
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

import numpy as np

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


# ---- vocabularies of SentencePiece: blanks are U+2581, what is no token becomes bytes

def blanks(text, scheme):
    """The pieces of a text: `prepend` by a normaliser, `first` and `always` by Metaspace, which adds what is missing."""
    parts, at, out = text.split("<|end|>"), 0, []
    for part in parts:
        marked = part.replace(" ", "\u2581")
        if part and (scheme == "prepend" or scheme.startswith("always") and marked[0] != "\u2581"
                     or scheme == "first" and at == 0 and marked[0] != "\u2581"):
            marked = "\u2581" + marked
        if scheme == "always-split":
            words = []
            for c in marked:
                if c == "\u2581" or not words:
                    words.append("")
                words[-1] += c
            out.append(words)
        else:
            out.append([marked] if marked else [])
        at += len(part) + len("<|end|>")
    return out


def learn_characters(words, count):
    words, merges = [list(w) for w in words], []
    while len(merges) < count:
        pairs = {}
        for word in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(sorted(pairs), key=pairs.get)
        merges.append(best)
        words = [join(word, best) for word in words]
    return merges


def encode_characters(text, scheme, vocabulary, merges):
    ranks, out = {m: r for r, m in enumerate(merges)}, [vocabulary["<s>"]] if scheme == "prepend" else []
    for j, pieces in enumerate(blanks(text, scheme)):
        if j:
            out.append(vocabulary["<|end|>"])
        for piece in pieces:
            word = []
            for c in piece:
                word += [c] if c in vocabulary else [f"<0x{b:02X}>" for b in c.encode()]
            while len(word) > 1:
                pair = min(zip(word, word[1:]), key=lambda p: ranks.get(p, 10 ** 9))
                if pair not in ranks:
                    break
                word = join(word, pair)
            out += [vocabulary[w] for w in word]
    return out


def sentence_piece(scheme):
    """tokenizer.json, and how it encodes."""
    corpus = CORPUS.replace("日本語 ", "")  # some characters are no tokens
    merges = learn_characters([w for w in blanks(corpus, "always-split")[0]], 120)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + sorted(set(corpus.replace(" ", "\u2581")) - {"\n"})
    vocabulary = {t: i for i, t in enumerate(dict.fromkeys(tokens + ["".join(m) for m in merges]))}
    merges = [m for m in merges if all(part in vocabulary for part in m)]
    everything = {**vocabulary, "<|end|>": len(vocabulary)}
    tree = {"version": "1.0", "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "added_tokens": [{"id": everything[t], "content": t, "special": True} for t in ("<unk>", "<s>", "</s>", "<|end|>")],
            "model": {"type": "BPE", "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", "vocab": vocabulary,
                      "merges": [" ".join(m) for m in merges]},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}
    if scheme == "prepend":
        tree["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
        tree["post_processor"] = {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}
    else:
        tree["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "split": scheme == "always-split",
                                 "prepend_scheme": scheme.split("-")[0]}
    return tree, lambda text: encode_characters(text, scheme, everything, merges)


# ---- the vocabulary of RWKV's world models: the longest token that the rest begins with

def world():
    """Tokens from 1 on, as bytes or texts; the bytes that are no UTF-8 among them."""
    tokens = [bytes([b]) for b in range(256)]
    for word in ("It", " was", " the", " best", " be", "we're", "\n\n", "  ", "'ll", '"', "\\", "caf", "é", "日本", "日本語", " т", "\t\t",
                 "<|end|>", "it's \"x\""):
        tokens.append(word.encode())
    tokens += ["日".encode()[:2], "é".encode()[:1] + b"x"]
    return list(dict.fromkeys(tokens))


def encode_world(text, tokens):
    rest, out = text.encode(), []
    while rest:
        best = max((t for t in tokens if rest.startswith(t)), key=len)
        out.append(tokens.index(best) + 1)
        rest = rest[len(best):]
    return out


def world_lines(tokens):
    def literal(token):
        try:
            return repr(token.decode())
        except UnicodeDecodeError:
            return repr(token)
    return "".join(f"{i + 1} {literal(t)} {len(t)}\n" for i, t in enumerate(tokens))


def world_gguf(tokens):
    """As converters write them: bytes beyond ASCII and what is not printed escaped."""
    escape = lambda token: "".join(
        chr(b) if 0x20 <= b < 0x7F and chr(b) not in "\\'" else f"\\x{b:02x}" for b in token)
    return {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": ["<s>"] + [escape(t) for t in tokens],
            "tokenizer.ggml.token_type": [3] + [1] * len(tokens)}


class Comparison:
    def __init__(self, program):
        self.program, self.failures, self.compared = program, 0, 0

    def texts(self, name, model, encode):
        for text in filter(None, TEXTS):
            run = subprocess.run([self.program, "logits", model, "--text", text, "--json"], capture_output=True, text=True)
            self.compared += 1
            got, expected = json.loads(run.stdout)["tokens"] if run.returncode == 0 else run.stderr, encode(text)
            if got != expected:
                self.failures += 1
                print(f"FAILED {name} {os.path.basename(model)} {text!r}\n  got      {got}\n  expected {expected}")


def gguf_with(tensors, keys, folder):
    t6 = {**rwkv.rwkv_6()[0], **{big: tensors[big] for big in ("emb.weight", "head.weight")}}
    held, g = rwkv.gguf_6(t6)
    held.update(keys)
    path = os.path.join(folder, "model.gguf")
    os.makedirs(folder, exist_ok=True)
    write_gguf(path, held, g)
    return path


def byte_level_case(name, split, nfc, names, tensors, compare):
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
    everything = {**vocabulary, "<|end|>": end}
    expected = lambda text: encode(text, split, everything, merges, nfc)
    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        with open(os.path.join(folder, "tokenizer.json"), "w") as f:
            json.dump(tree, f)
        compare.texts(name, folder, expected)
        for pre in names:
            keys = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": list(everything),
                    "tokenizer.ggml.token_type": [1] * len(vocabulary) + [3],
                    "tokenizer.ggml.merges": [" ".join(m) for m in merges]}
            compare.texts(pre, gguf_with(tensors, keys, os.path.join(folder, pre)), expected)


def main():
    compare = Comparison(sys.argv[1])
    tensors, rng = dict(rwkv.rwkv_4()[0]), np.random.default_rng(1)
    for name in ("emb.weight", "head.weight"):
        tensors[name] = rng.standard_normal((600, rwkv.D)).astype(np.float32)
    byte_level_case("gpt-2", split_gpt2, False, ("gpt-2", "mpt", "olmo"), tensors, compare)
    byte_level_case("qwen2", split_qwen2, True, ("qwen2", "deepseek-r1-qwen"), tensors, compare)
    for scheme in ("prepend", "first", "always-split", "never"):
        tree, expected = sentence_piece(scheme)
        with tempfile.TemporaryDirectory() as folder:
            write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
            with open(os.path.join(folder, "tokenizer.json"), "w") as f:
                json.dump(tree, f)
            compare.texts("byte_fallback " + scheme, folder, expected)
    tokens = world()
    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        with open(os.path.join(folder, "rwkv_vocab_v20230424.txt"), "w") as f:
            f.write(world_lines(tokens))
        compare.texts("world", folder, lambda text: encode_world(text, tokens))
        gguf = gguf_with(tensors, world_gguf(tokens), os.path.join(folder, "other"))
        compare.texts("world", gguf, lambda text: encode_world(text, tokens))
    print(f"{compare.compared - compare.failures} passed, {compare.failures} failed")
    return compare.failures > 0


if __name__ == "__main__":
    sys.exit(main())
