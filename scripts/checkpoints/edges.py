#!/usr/bin/env python3
"""Small models for tests of what is around a model: logits that are no numbers, tokens that end a text, chats, drafts.

    scripts/checkpoints/edges.py FOLDER

A model named `says-*` says the same after every text: its last norm has the weight 0, and the first column of its head are
the logits.
"""
import json
import os
import sys

import numpy as np

import rwkv
from files import write_gguf, write_safetensors
from tokenize_texts import byte_level

NAMED = ["<|im_start|>", "<|im_end|>", "<|begin|>", "<|halt|>"]


def model(rows, seed=1, logits=None):
    """RWKV-4 with a vocabulary of so many rows."""
    tensors, rng = dict(rwkv.rwkv_4()[0]), np.random.default_rng(seed)
    for name in ("emb.weight", "head.weight"):
        tensors[name] = rng.standard_normal((rows, rwkv.D)).astype(np.float32)
    if logits is not None:
        tensors["ln_out.weight"] = np.zeros(rwkv.D, np.float32)
        tensors["ln_out.bias"] = np.eye(1, rwkv.D, dtype=np.float32)[0]
        tensors["head.weight"] = np.zeros((rows, rwkv.D), np.float32)
        tensors["head.weight"][:, 0] = logits
    return tensors


def write(folder, tensors, **files):
    os.makedirs(folder)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    for name, tree in files.items():
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump(tree, f)


def main():
    at = lambda name: os.path.join(sys.argv[1], name)
    for name, value in (("nan", np.nan), ("inf", np.inf), ("least", -np.inf)):
        logits = np.linspace(0, 1, 256)
        logits[7] = value
        write(at("says-" + name), model(256, logits=logits))
    write(at("says-least-all"), model(256, logits=np.full(256, -np.inf)))
    broken = dict(rwkv.rwkv_7()[0])
    broken["emb.weight"] = broken["emb.weight"].copy()
    broken["emb.weight"][20] = np.nan  # after this token alone
    write(at("nan-after-20"), broken)

    tokenizer, vocabulary = byte_level(NAMED)
    begin = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}},
                                                      {"Sequence": {"id": "A", "type_id": 0}}]}
    rows = len(vocabulary)
    ends = np.zeros(rows)
    ends[vocabulary["<|halt|>"]] = 9
    halt, template = vocabulary["<|halt|>"], "{{ '<|im_start|>' + message['role'] }}"
    ended = model(rows, logits=ends)
    write(at("says-halt"), ended, tokenizer=tokenizer)
    write(at("ends-config"), ended, tokenizer=tokenizer, config={"eos_token_id": halt})
    write(at("ends-list"), ended, tokenizer=tokenizer, config={"eos_token_id": [3, halt]})
    write(at("ends-generation"), ended, tokenizer=tokenizer, config={"eos_token_id": 3},
          generation_config={"eos_token_id": [5, halt]})
    write(at("ends-name"), ended, tokenizer=tokenizer, tokenizer_config={"eos_token": "<|halt|>"})
    write(at("ends-object"), ended, tokenizer=tokenizer, tokenizer_config={"eos_token": {"content": "<|halt|>"}})
    write(at("ends-not"), ended, tokenizer=tokenizer, config={"eos_token_id": 3})
    keys, g = rwkv.gguf_6({**rwkv.rwkv_6()[0], **{n: ended[n] for n in ("emb.weight", "head.weight")},
                           "ln_out.weight": ended["ln_out.weight"], "ln_out.bias": ended["ln_out.bias"]})
    keys.update({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "mpt", "tokenizer.ggml.tokens": list(vocabulary),
                 "tokenizer.ggml.token_type": [3 if t in NAMED else 1 for t in vocabulary],
                 "tokenizer.ggml.merges": tokenizer["model"]["merges"], "tokenizer.ggml.eot_token_id": halt})
    os.makedirs(at("ends-gguf"))
    write_gguf(os.path.join(at("ends-gguf"), "model.gguf"), keys, g)

    chat = np.zeros(rows)
    chat[vocabulary["<|im_end|>"]] = 9
    listed = [{"name": "tool_use", "template": "none"}, {"name": "default", "template": template}]
    files = {"tokenizer": {**tokenizer, "post_processor": begin}, "tokenizer_config": {"chat_template": listed}}
    write(at("chat"), model(rows, logits=chat), **files)
    chat[vocabulary["<|im_end|>"]], chat[vocabulary["a"]] = 0, 9
    write(at("chat-goes-on"), model(rows, logits=chat), **files)
    write(at("unknown-tokenizer"), model(rows), tokenizer={**tokenizer, "model": {"type": "Unigram", "vocab": {"a": 1}}})

    write(at("says-p"), model(8, logits=np.log([.3, .25, .2, .1, .06, .05, .03, .01])))
    write(at("says-q"), model(8, logits=np.log([.1, .1, .3, .3, .05, .05, .05, .05])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
