"""A text, its pieces by two patterns, and merges learned of them: what tokenizers of tests are made of. Classes of characters are
those of Python's unicodedata; no regular expression is used."""
import unicodedata

CORPUS = ("It was the best of times, it was the worst of times; we're here, they'd gone, I'll see. "
          "Numbers 123 4567 and   blanks\n\nNaïve café, Ünïcode — 日本語 текст. The end of the times.\n") * 3


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


def byte_level(named, count=60):
    """tokenizer.json by the pattern of GPT-2 with further tokens that a text may name, and all tokens with their numbers."""
    merges = learn(split_gpt2(CORPUS), count)
    plain = dict.fromkeys(list(stand_ins().values()) + ["".join(m) for m in merges])
    numbers = {t: i for i, t in enumerate(list(plain) + named)}
    return {"version": "1.0", "normalizer": None, "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": numbers[t], "content": t, "special": True} for t in named],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": {t: numbers[t] for t in plain}, "merges": [" ".join(m) for m in merges]}}, numbers
