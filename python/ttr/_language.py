"""Published language models (``libttr_language_c`` through ctypes): RWKV, Mamba, flash-linear-attention, Qwen3-Next."""

from __future__ import annotations

import ctypes as c
import json
import os
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence as ListOf

import numpy as np

from ._library import BAD_ARGUMENT, OK, Error, Sized

__all__ = ["LanguageModel", "Text", "load_model"]

ABI_VERSION = 1
_lib: c.CDLL | None = None


class _Options(Sized):
    _fields_ = (
        [("size", c.c_size_t)]
        + [(n, c.c_int32) for n in ("threads", "context", "piece", "rewind")]
        + [("tokenizer", c.c_char_p), ("settings", c.c_char_p), ("activations", c.c_int32)]
    )


_pointer, _size, _i64, _i32, _text = c.c_void_p, c.c_size_t, c.c_int64, c.c_int32, c.c_char_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (_i32, []),
    "last_error": (_text, []),
    "load": (_i32, [_text, _pointer, _pointer]),
    "destroy": (None, [_pointer]),
    "vocabulary": (_i32, [_pointer]),
    "describe": (_i32, [_pointer, _pointer, _pointer]),
    "encode": (_i32, [_pointer, _text, _size, _i32, _pointer, _pointer]),
    "decode": (_i32, [_pointer, _i32, _pointer, _pointer]),
    "sequence_create": (_i32, [_pointer, _pointer]),
    "sequence_clone": (_i32, [_pointer, _pointer]),
    "sequence_destroy": (None, [_pointer]),
    "sequence_reset": (_i32, [_pointer]),
    "sequence_tokens": (_i64, [_pointer]),
    "sequence_rewindable": (_i64, [_pointer]),
    "sequence_rewind": (_i32, [_pointer, _i64]),
    "sequence_save": (_i32, [_pointer, _text]),
    "sequence_load": (_i32, [_pointer, _text]),
    "prefill": (_i32, [_pointer, _pointer, _pointer, _size, _i32, _pointer]),
    "logits": (_i32, [_pointer, _pointer, _pointer, _size, _i32, _pointer]),
    "step": (_i32, [_pointer, _pointer, _pointer, _size, _pointer]),
}


def _library() -> c.CDLL:
    """The library, loaded when it is first needed: most of ttr does without it."""
    global _lib
    if _lib is not None:
        return _lib
    here, name = Path(__file__).resolve().parent, "libttr_language_c.so"
    named = os.environ.get("TTR_LANGUAGE_LIBRARY")
    beside = [named] if named else [str(here / name), str(here.parent.parent / "build" / name)]
    tried = []
    for pattern in ("libutf8proc*", "libpcre2*"):  # a wheel brings them along
        for companion in here.glob(pattern):
            c.CDLL(str(companion), mode=c.RTLD_GLOBAL)
    for path in [p for p in beside if named or os.path.exists(p)] + ([] if named else [f"{name}.{ABI_VERSION}"]):
        try:
            lib = c.CDLL(path)
            break
        except OSError as problem:
            tried.append(f"{path} ({problem})")
    else:
        raise Error(
            f"language models need {name} and there is none; build it with `cmake --build build --target "
            "ttr_language_c`, or name it in the environment as TTR_LANGUAGE_LIBRARY. Tried: " + "; ".join(tried)
        )
    for function, (restype, argtypes) in _SIGNATURES.items():
        one = getattr(lib, "ttr_lm_" + function)
        one.restype, one.argtypes = restype, argtypes
    if lib.ttr_lm_abi_version() != ABI_VERSION:
        raise Error(f"{name} has ABI {lib.ttr_lm_abi_version()}, this package needs {ABI_VERSION}; install both anew")
    _lib = lib
    return lib


def _check(status: int) -> None:
    if status != OK:
        raise Error(_library().ttr_lm_last_error().decode(errors="replace"))


def _tokens(tokens: Any) -> np.ndarray:
    array = np.ascontiguousarray(tokens, dtype=np.int32)
    if array.ndim != 1:
        raise Error(f"tokens have the shape {array.shape}; they are a list of numbers")
    return array


class Text:
    """What one text has seen; made by :meth:`LanguageModel.text`."""

    def __init__(self, model: "LanguageModel", handle: c.c_void_p) -> None:
        self.model, self._handle = model, handle

    def __del__(self) -> None:
        if _lib is not None and getattr(self, "_handle", None):
            _lib.ttr_lm_sequence_destroy(self._handle)

    def __len__(self) -> int:
        return int(_library().ttr_lm_sequence_tokens(self._handle))

    def __repr__(self) -> str:
        return f"<ttr.Text of {len(self)} tokens>"

    @property
    def rewindable(self) -> int:
        """Newest tokens that can be taken back."""
        return int(_library().ttr_lm_sequence_rewindable(self._handle))

    def copy(self) -> "Text":
        handle = c.c_void_p()
        _check(_library().ttr_lm_sequence_clone(self._handle, c.byref(handle)))
        return Text(self.model, handle)

    def reset(self) -> "Text":
        _check(_library().ttr_lm_sequence_reset(self._handle))
        return self

    def rewind(self, tokens: int) -> "Text":
        """Takes back the newest tokens, bit for bit: up to ``rewind`` of :func:`load_model`."""
        _check(_library().ttr_lm_sequence_rewind(self._handle, int(tokens)))
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """What was seen: every token that was given to prefill, logits or step."""
        _check(_library().ttr_lm_sequence_save(self._handle, os.fsencode(path)))

    def load(self, path: str | os.PathLike[str]) -> "Text":
        _check(_library().ttr_lm_sequence_load(self._handle, os.fsencode(path)))
        return self


class LanguageModel:
    """A published model; made by :func:`load_model`. Its calls are made by one thread at a time.

    Attributes
    ----------
    about : dict
        Architecture, layers, width, vocabulary, parameters, bytes of weights, state and workspace, tokenizer.
    vocabulary : int
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        lib, self._handle = _library(), c.c_void_p()
        settings = "\n".join(f"{name}={value}" for name, value in (options.pop("settings") or {}).items())
        tokenizer = options.pop("tokenizer")
        threads = options.pop("threads")
        activations = options.pop("activations")
        if activations not in ("exact", "rounded"):
            raise ValueError(f"activations is {activations!r}; it is 'exact' or 'rounded'")
        if settings:
            options["settings"] = settings.encode()
        if tokenizer:
            options["tokenizer"] = os.fsencode(tokenizer)
        how = _Options(threads=-1 if threads == 0 else threads, activations=int(activations == "rounded"), **options)
        _check(lib.ttr_lm_load(os.fsencode(path), c.byref(how), c.byref(self._handle)))
        size = _size(0)
        lib.ttr_lm_describe(self._handle, None, c.byref(size))
        buffer = c.create_string_buffer(size.value)
        _check(lib.ttr_lm_describe(self._handle, buffer, c.byref(size)))
        self.about: dict[str, Any] = json.loads(buffer.value.decode(errors="replace"))
        self.vocabulary: int = self.about["vocabulary"]

    def __del__(self) -> None:
        if _lib is not None and getattr(self, "_handle", None):
            _lib.ttr_lm_destroy(self._handle)

    def __repr__(self) -> str:
        a = self.about
        return f"<ttr.LanguageModel {a['architecture']}, {a['layers']} layers of width {a['width']}, {a['vocabulary']} tokens>"

    def encode(self, text: str | bytes, special: bool = True, beginning: bool = True) -> list[int]:
        """The tokens of a text; ``special``: with those that it names, and before it (``beginning``) those that the model wants."""
        how = 0 if not special else 1 if beginning else 2
        data = text.encode() if isinstance(text, str) else text
        count = _size(len(data) + 16)
        while True:
            tokens = np.empty(count.value, dtype=np.int32)
            status = _library().ttr_lm_encode(self._handle, data, len(data), how, tokens.ctypes.data, c.byref(count))
            if status != BAD_ARGUMENT or count.value <= len(tokens):
                break
        _check(status)
        return [int(token) for token in tokens[: count.value]]

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        whole = b""
        for token in tokens:
            size = _size(256)
            buffer = c.create_string_buffer(size.value)
            status = _library().ttr_lm_decode(self._handle, int(token), buffer, c.byref(size))
            if status == BAD_ARGUMENT and size.value > 256:
                buffer = c.create_string_buffer(size.value)
                status = _library().ttr_lm_decode(self._handle, int(token), buffer, c.byref(size))
            _check(status)
            whole += buffer.raw[: size.value]
        return whole

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def text(self) -> Text:
        """A text that has seen nothing."""
        handle = c.c_void_p()
        _check(_library().ttr_lm_sequence_create(self._handle, c.byref(handle)))
        return Text(self, handle)

    def prefill(self, text: Text, tokens: Any, fixed: bool = False) -> np.ndarray:
        """The tokens, then the logits [vocabulary] of what comes next.

        ``fixed``: token by token, with the same bits however a text is cut into calls."""
        given, logits = _tokens(tokens), np.empty(self.vocabulary, dtype=np.float32)
        _check(
            _library().ttr_lm_prefill(
                self._handle, text._handle, given.ctypes.data, len(given), int(fixed), logits.ctypes.data
            )
        )
        return logits

    def logits(self, tokens: Any, text: Text | None = None, fixed: bool = False) -> np.ndarray:
        """The logits after every token, [tokens, vocabulary]; of a new text if there is none."""
        given = _tokens(tokens)
        rows = np.empty((len(given), self.vocabulary), dtype=np.float32)
        seen = self.text() if text is None else text
        _check(_library().ttr_lm_logits(self._handle, seen._handle, given.ctypes.data, len(given), int(fixed), rows.ctypes.data))
        return rows

    def step(self, texts: ListOf[Text], tokens: Any) -> np.ndarray:
        """One token of each of several texts, which go on together: their logits [texts, vocabulary].

        Fixed bits: what a text gets does not depend on the others. Texts join and leave between calls."""
        given = _tokens(tokens)
        if len(given) != len(texts):
            raise Error(f"{len(given)} tokens are not one for each of {len(texts)} texts")
        handles = (c.c_void_p * len(texts))(*[text._handle for text in texts])
        rows = np.empty((len(texts), self.vocabulary), dtype=np.float32)
        _check(_library().ttr_lm_step(self._handle, handles, given.ctypes.data, len(texts), rows.ctypes.data))
        return rows

    def stream(
        self,
        prompt: str | ListOf[int],
        tokens: int = 64,
        temperature: float = 0.8,
        top_p: float = 1.0,
        seed: int | None = None,
        text: Text | None = None,
    ) -> Iterator[int]:
        """Tokens as they are drawn. At temperature 0 the likeliest; ends where the model ends its text."""
        text = self.text() if text is None else text
        given = self.encode(prompt) if isinstance(prompt, str) else list(prompt)
        rng, ends = np.random.default_rng(seed), set(self.about["ends"])
        logits = self.prefill(text, given)
        for _ in range(tokens):
            token = _draw(logits, temperature, top_p, rng)
            if token in ends:
                return
            yield token
            logits = self.step([text], [token])[0]

    def generate(self, prompt: str | ListOf[int], tokens: int = 64, **options: Any) -> str | list[int]:
        """What :meth:`stream` makes: a text of a text, tokens of tokens."""
        made = list(self.stream(prompt, tokens, **options))
        return self.decode(made) if isinstance(prompt, str) else made


def _draw(logits: np.ndarray, temperature: float, top_p: float, rng: np.random.Generator) -> int:
    if temperature < 0 or not 0 < top_p <= 1:
        raise Error(f"the temperature is {temperature} and top_p {top_p}; they are at least 0, and above 0 to 1")
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise Error("the logits of the model are not numbers: its weights or settings are not what it was trained with")
    if temperature == 0:
        return int(logits.argmax())
    scores = logits.astype(np.float64) / temperature
    shares = np.exp(scores - scores.max())
    order = np.argsort(-shares, kind="stable")
    sums = np.cumsum(shares[order])
    kept = order[: int(np.searchsorted(sums, top_p * sums[-1])) + 1]
    place = int(np.searchsorted(np.cumsum(shares[kept]), rng.random() * shares[kept].sum()))
    return int(kept[min(place, len(kept) - 1)])


def load_model(
    path: str | os.PathLike[str],
    threads: int = 0,
    context: int = 4096,
    piece: int = 0,
    rewind: int = 0,
    tokenizer: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    activations: str = "exact",
) -> LanguageModel:
    """A published model: ``.safetensors``, a Hugging Face folder or ``.gguf`` (docs/models.md).

    Parameters
    ----------
    path : path
        A file or a folder; weights are mapped, in the type they are stored in.
    threads : int
        0: all cores.
    context : int
        Longest text, where a layer keeps its tokens.
    piece : int
        Tokens of a prompt that go through the layers together; 0: the library's own.
    rewind : int
        Newest tokens of a text that can be taken back.
    tokenizer : path, optional
        A file; otherwise what lies beside the weights or in them.
    settings : mapping, optional
        They go before those of the checkpoint: ``{"group_norm_eps": 1e-5}``.
    activations : {"exact", "rounded"}
        What products with weights multiply: activations as they are, or rounded to bf16 with weights of BF16 and to eight
        bits with Q8_0 and Q4_0.

    >>> model = ttr.load_model("model.gguf")                        # doctest: +SKIP
    >>> print(model.generate("Once upon", tokens=32))               # doctest: +SKIP
    """
    return LanguageModel(
        path,
        threads=threads,
        context=context,
        piece=piece,
        rewind=rewind,
        tokenizer=tokenizer,
        settings=settings,
        activations=activations,
    )
