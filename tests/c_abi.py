# The C functions through ctypes, without numpy: a plan of every layer, tokens by name and prepared, slots, saved states,
# and what must be refused. usage: c_abi.py libttr_c.so
import array
import ctypes as c
import os
import sys
import tempfile

lib = c.CDLL(sys.argv[1])
RANK = 6
OK, MISSING_INPUT, UNKNOWN_NAME, NOT_SUPPORTED, ERROR, BAD_ARGUMENT = 0, 1, 10, 8, 100, 101
STEP, RECURRENT = 1, 2


class Sized(c.Structure):
    def __init__(self, **fields):
        super().__init__(**fields)
        self.size = c.sizeof(self)


class Shape(Sized):
    _fields_ = [("size", c.c_size_t)] + [(n, c.c_int32) for n in ("batch", "heads", "key_heads", "key_dim", "value_dim")]


class Options(Sized):
    _fields_ = ([("size", c.c_size_t)]
                + [(n, c.c_int32) for n in ("type", "half_tensors", "whole", "chunk", "threads", "rewind", "has_scale")]
                + [("scale", c.c_double), ("settings", c.c_char_p), ("kernel", c.c_char_p), ("target", c.c_char_p),
                   ("run_jobs", c.c_void_p), ("executor", c.c_void_p), ("state_type", c.c_int32)])


class Tensor(Sized):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("data", c.c_void_p), ("type", c.c_int32),
                ("rank", c.c_int32), ("extent", c.c_int64 * RANK), ("stride", c.c_int64 * RANK)]


class Arguments(Sized):
    _fields_ = [("size", c.c_size_t), ("inputs", c.c_void_p), ("input_count", c.c_size_t), ("outputs", c.c_void_p),
                ("output_count", c.c_size_t), ("state", c.c_void_p), ("state_bytes", c.c_size_t),
                ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t), ("form", c.c_int32),
                ("cu_seqlens", c.c_void_p), ("cu_seqlens_pairs", c.c_void_p)]


class Gradients(Sized):
    _fields_ = [("size", c.c_size_t), ("d_outputs", c.c_void_p), ("d_output_count", c.c_size_t),
                ("d_inputs", c.c_void_p), ("d_input_count", c.c_size_t), ("d_final", c.c_void_p),
                ("d_final_bytes", c.c_size_t), ("d_initial", c.c_void_p), ("d_initial_bytes", c.c_size_t),
                ("gradients", c.c_int32)]


class Footprint(Sized):
    _fields_ = [(n, c.c_size_t) for n in ("size", "state", "workspace", "backward")]


class Info(Sized):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("shape", c.c_char_p), ("meaning", c.c_char_p),
                ("differentiable", c.c_int32), ("optional", c.c_int32)]


for name in ("ttr_version", "ttr_last_error", "ttr_layer_name", "ttr_plan_name", "ttr_plan_kernel", "ttr_status_text"):
    getattr(lib, name).restype = c.c_char_p
for name in ("ttr_layer_count", "ttr_plan_input_count", "ttr_plan_output_count", "ttr_plan_state_count",
             "ttr_plan_extents"):
    getattr(lib, name).restype = c.c_size_t
for name in ("tokens_seen", "tokens_kept", "capacity", "rewindable"):
    getattr(lib, "ttr_state_" + name).restype = c.c_int64

failures = 0


def expect(what, good):
    global failures
    if not good:
        failures += 1
        print("FAILED", what, "| last error:", said())


def said():
    return lib.ttr_last_error().decode()


def plan_of(text, dims=(2, 2, 2, 3, 3), **options):
    plan = c.c_void_p()
    shape, wanted = Shape(**dict(zip(("batch", "heads", "key_heads", "key_dim", "value_dim"), dims))), Options(**options)
    status = lib.ttr_plan_create(text, c.byref(shape), c.byref(wanted), c.byref(plan))
    return (plan if status == OK else None), status


def infos(plan, kind):
    result = []
    for i in range(getattr(lib, f"ttr_plan_{kind}_count")(plan)):
        info = Info()
        expect("info", getattr(lib, f"ttr_plan_{kind}")(plan, c.c_size_t(i), c.byref(info)) == OK)
        result.append(info)
    return result


class Session:
    """Tensors, state and workspace of one plan for calls of `time` tokens in double."""

    def __init__(self, plan, time=1, room=16):
        self.plan, self.bytes, self.memory = plan, Footprint(), []
        expect("footprint", lib.ttr_plan_footprint(plan, c.c_int64(room), 0, c.byref(self.bytes)) == OK)
        self.state = c.create_string_buffer(self.bytes.state + 8)
        self.work = c.create_string_buffer(max(self.bytes.workspace, self.bytes.backward) + 64)
        expect("reset", lib.ttr_state_reset(plan, self.at(self.state), self.size()) == OK)
        self.inputs = [self.tensor(i, time) for i in infos(plan, "input")]
        self.outputs = [self.tensor(i, time) for i in infos(plan, "output")]
        self.reads = (Tensor * len(self.inputs))(*self.inputs)
        self.writes = (Tensor * len(self.outputs))(*self.outputs)

    @staticmethod
    def at(buffer):  # aligned to 8 bytes
        return c.c_void_p((c.addressof(buffer) + 7) // 8 * 8)

    def size(self):
        return c.c_size_t(self.bytes.state)

    def tensor(self, info, time):
        t = Tensor(name=info.name, type=1)
        t.rank = lib.ttr_plan_extents(self.plan, info.shape, c.c_int64(time), t.extent)
        count = 1
        for d in range(t.rank):
            count *= t.extent[d]
        numbers = array.array("d", [0.0] * count)
        self.memory.append(numbers)
        t.data = numbers.buffer_info()[0]
        return t

    def fill(self, seed):
        for n, (info, numbers) in enumerate(zip(infos(self.plan, "input"), self.memory)):
            for i in range(len(numbers)):
                x = ((i * 37 + seed * 53 + n * 17) % 101) / 101
                numbers[i] = -0.3 * x if b"log" in info.meaning else 0.05 + 0.2 * x

    def arguments(self, form=0):
        return Arguments(inputs=c.addressof(self.reads), input_count=len(self.inputs),
                         outputs=c.addressof(self.writes), output_count=len(self.outputs),
                         state=self.at(self.state), state_bytes=self.bytes.state, workspace=self.at(self.work),
                         workspace_bytes=len(self.work) - 8, form=form)

    def forward(self, form=0):
        return lib.ttr_forward(self.plan, c.byref(self.arguments(form)))

    def answers(self):
        return [list(m) for m in self.memory[len(self.inputs):]]


expect("version", lib.ttr_version().count(b".") == 2 and lib.ttr_abi_version() == 1)
expect("layout", lib.ttr_saved_state_layout() == 2)
layers = [lib.ttr_layer_name(c.c_size_t(i)) for i in range(lib.ttr_layer_count())]
expect("layers", len(layers) > 80 and b"gated-deltanet" in layers and lib.ttr_layer_name(c.c_size_t(9999)) is None)

# Every layer: planned, described, and calls by name and prepared have the same bits.
ran = 0
for layer in layers:
    plan, status = plan_of(layer, type=1)
    expect(layer, status == OK)
    if not plan:
        continue
    one, two = Session(plan, 3), Session(plan, 3)
    one.fill(1), two.fill(1)
    status = one.forward()
    if status == 7:  # outside the domain of a layer: these numbers are nobody's
        lib.ttr_plan_destroy(plan)
        continue
    expect(f"{layer.decode()} forward", status == OK)
    call = c.c_void_p()
    expect("prepare", lib.ttr_call_create(plan, c.byref(two.arguments()), c.byref(call)) == OK)
    reads = (c.c_void_p * len(two.inputs))(*[t.data for t in two.inputs])
    writes = (c.c_void_p * len(two.outputs))(*[t.data for t in two.outputs])
    expect(f"{layer.decode()} prepared",
           lib.ttr_call_run(call, reads, writes, two.at(two.state), two.size(), two.at(two.work),
                            c.c_size_t(len(two.work) - 8)) == OK)
    expect(f"{layer.decode()}: bits", one.answers() == two.answers())
    lib.ttr_call_destroy(call)
    lib.ttr_plan_destroy(plan)
    ran += 1
expect(f"{ran} layers ran", ran > 70)

# Texts: JSON, in a buffer that is large enough or not.
import json  # noqa: E402

lib.ttr_last_error_where.restype = c.c_char_p


def text_of(function, *arguments):
    size = c.c_size_t(0)
    expect("size of a text", function(*arguments, None, c.byref(size)) == OK and size.value > 2)
    small = c.create_string_buffer(2)
    expect("a small buffer", function(*arguments, small, c.byref(c.c_size_t(2))) == BAD_ARGUMENT and small.raw == bytes(2))
    buffer = c.create_string_buffer(size.value)
    expect("a text", function(*arguments, buffer, c.byref(size)) == OK)
    return json.loads(buffer.value.decode())


for layer in layers:
    about = text_of(lib.ttr_layer_describe, layer)
    expect(layer, about["name"] == layer.decode() and about["inputs"] and about["outputs"])
    if about["recipe"]:
        expect(layer, text_of(lib.ttr_derive, layer, 1)["recurrence"] and text_of(lib.ttr_derive, layer, 0)["objective"])
plan, _ = plan_of(b"gated-deltanet", type=1)
expect("a plan described", [i["name"] for i in text_of(lib.ttr_plan_describe, plan)["inputs"]] == ["q", "k", "v", "beta", "g"])
lib.ttr_plan_destroy(plan)
expect("a stream described", text_of(lib.ttr_stream_describe, b"rls")["inputs"] is not None)
expect("no layer", lib.ttr_layer_describe(b"nlsm", None, c.byref(c.c_size_t())) == ERROR and "nlms" in said())
expect("where", lib.ttr_last_error_where() == b"layer nlsm")
expect("nothing to derive", lib.ttr_derive(b"rms-norm", 0, None, c.byref(c.c_size_t())) == ERROR and "nothing to derive" in said())
expect("NULL", lib.ttr_derive(None, 0, None, None) == BAD_ARGUMENT)

# Slots, rewinding and saved states.
for text in (b"gated-deltanet", b"softmax-attention"):
    plan, _ = plan_of(text, type=1, rewind=2)
    s = Session(plan)
    at, size = s.at(s.state), s.size()
    seen = lambda n: lib.ttr_state_tokens_seen(plan, at, size, n)
    history = []
    for token in range(5):
        s.fill(token)
        expect("step", lib.ttr_step(plan, c.byref(s.arguments(STEP))) == OK)
        history.append(s.answers())
    expect("seen", seen(0) == 5 and seen(1) == 5)
    expect("rewind", all(lib.ttr_slot_rewind(plan, at, size, n, c.c_int64(2)) == OK for n in (0, 1)) and seen(0) == 3)
    path = os.path.join(tempfile.mkdtemp(), "state.safetensors").encode()
    expect("save", lib.ttr_state_save(plan, at, size, -1, path) == OK)
    expect("reset", lib.ttr_slot_reset(plan, at, size, 1) == OK and seen(1) == 0)
    expect("load one", lib.ttr_state_load(plan, at, size, 1, 1, path) == OK and seen(1) == 3)
    s.fill(3)
    expect("again", lib.ttr_step(plan, c.byref(s.arguments(STEP))) == OK and s.answers() == history[3])
    needed = c.c_size_t(0)
    expect("size of a packed state", lib.ttr_state_pack(plan, at, size, 0, None, c.byref(needed)) == OK and needed.value > 100)
    packed = c.create_string_buffer(needed.value)
    expect("pack", lib.ttr_state_pack(plan, at, size, 0, packed, c.byref(needed)) == OK)
    expect("copy", lib.ttr_slot_copy(plan, at, size, 1, plan, at, size, 0) == OK)
    expect("swap", lib.ttr_slot_swap(plan, at, size, 0, 1) == OK)
    expect("unpack", lib.ttr_state_unpack(plan, at, size, 1, -1, packed, needed) == OK and seen(1) == 4)
    packed[needed.value // 2] = bytes([packed[needed.value // 2][0] ^ 4])
    expect("damage", lib.ttr_state_unpack(plan, at, size, 1, -1, packed, needed) == ERROR and "a saved state" in said())
    tensor = Tensor()
    part = infos(plan, "state")[0].name
    expect("state tensor", lib.ttr_state_tensor(plan, at, size, part, c.byref(tensor)) == OK and tensor.rank >= 3)
    expect("no such part", lib.ttr_state_tensor(plan, at, size, b"nothing", c.byref(tensor)) == UNKNOWN_NAME)
    expect("counts", [i.name for i in infos(plan, "state")][-1] == b"tokens")
    lib.ttr_plan_destroy(plan)

# Gradients, written and added.
plan, _ = plan_of(b"gated-deltanet", type=1)
s, d = Session(plan, 4), Session(plan, 4)
s.fill(2)
for m in d.memory[len(d.inputs):]:
    for i in range(len(m)):
        m[i] = 1.0
gradients = Gradients(d_outputs=c.addressof(d.writes), d_output_count=len(d.outputs), d_inputs=c.addressof(d.reads),
                      d_input_count=len(d.inputs))
arguments = s.arguments()
expect("backward", lib.ttr_backward(plan, c.byref(arguments), c.byref(gradients)) == OK)
first = [list(m) for m in d.memory[:len(d.inputs)]]
gradients.gradients = 1
expect("backward again", lib.ttr_backward(plan, c.byref(arguments), c.byref(gradients)) == OK)
twice = [list(m) for m in d.memory[:len(d.inputs)]]
expect("added", any(x != 0 for m in first for x in m)
       and all(abs(b - 2 * a) < 1e-12 for m, n in zip(first, twice) for a, b in zip(m, n)))

back = c.c_void_p()
gradients.gradients = 0
expect("prepare backward",
       lib.ttr_backward_create(plan, c.byref(arguments), c.byref(gradients), c.byref(back)) == OK)
reads = (c.c_void_p * len(s.inputs))(*[t.data for t in s.inputs])
d_reads = (c.c_void_p * len(d.outputs))(*[t.data for t in d.outputs])
d_writes = (c.c_void_p * len(d.inputs))(*[t.data for t in d.inputs])
run_back = lambda work_bytes: lib.ttr_backward_run(back, reads, s.at(s.state), s.size(), d_reads, None, c.c_size_t(0), d_writes,
                                                   None, c.c_size_t(0), s.at(s.work), c.c_size_t(work_bytes))
expect("prepared backward", run_back(len(s.work) - 8) == OK)
expect("its bits", first == [list(m) for m in d.memory[:len(d.inputs)]])
expect("small workspace", run_back(8) == 6 and said() != "")
expect("no calls", lib.ttr_backward_create(plan, c.byref(arguments), None, c.byref(back)) == BAD_ARGUMENT)

# A state in fewer bytes.
BF16, F16, F32, I8 = 2, 3, 0, 5
for text, state_type in ((b"gated-deltanet", BF16), (b"softmax-attention", F16), (b"softmax-attention", I8)):
    sizes = []
    for options in ({}, {"state_type": state_type}):
        half, status = plan_of(text, type=F32, **options)
        expect("compact plan", status == OK)
        bytes_ = Footprint()
        expect("footprint", lib.ttr_plan_footprint(half, c.c_int64(64), 0, c.byref(bytes_)) == OK)
        sizes.append(bytes_.state)
        state = c.create_string_buffer(bytes_.state + 8)
        expect("reset", lib.ttr_state_reset(half, Session.at(state), c.c_size_t(bytes_.state)) == OK)
        tensor = Tensor()
        part = infos(half, "state")[0].name
        expect("compact part", lib.ttr_state_tensor(half, Session.at(state), c.c_size_t(bytes_.state), part,
                                                    c.byref(tensor)) == OK and tensor.type == options.get("state_type", F32))
        lib.ttr_plan_destroy(half)
    expect("fewer bytes", sizes[1] < sizes[0])
expect("compact double", plan_of(b"gated-deltanet", type=1, state_type=BF16)[1] == ERROR and "state_type" in said())

# A stream with memory of its own: the same answers, a query that leaves no trace, a clone, a file, going back.
stream, clone = c.c_void_p(), c.c_void_p()
lib.ttr_stream_tokens.restype = c.c_int64
one, _ = plan_of(b"gated-deltanet", type=1, rewind=2)
expect("stream", lib.ttr_stream_create(one, c.byref(stream)) == OK)
numbers = [(c.c_double * 64)(*[0.01 * (i + j) for j in range(64)]) for i in range(3)]
gates = [(c.c_double * 64)(*[x] * 64) for x in (0.5, -0.1)]
pointers = (c.c_void_p * 5)(*[c.addressof(x) for x in numbers + gates])


def stream_call(function, which):
    answer = (c.c_double * 64)()
    expect("stream call", function(which, pointers, answer, c.c_int64(1)) == OK)
    return list(answer)


asked = stream_call(lib.ttr_stream_query, stream)
pushed = stream_call(lib.ttr_stream_push, stream)
expect("a query is a push that was not", asked == pushed and any(asked) and lib.ttr_stream_tokens(stream, 0) == 1)
expect("clone", lib.ttr_stream_clone(stream, c.byref(clone)) == OK)
second = stream_call(lib.ttr_stream_push, stream)
expect("the clone has the same past", stream_call(lib.ttr_stream_push, clone) == second != pushed)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "stream.safetensors").encode()
    expect("save", lib.ttr_stream_save(stream, path) == OK)
    expect("rewind", lib.ttr_stream_rewind(stream, c.c_int64(1)) == OK)
    expect("gone back", stream_call(lib.ttr_stream_query, stream) == second)
    expect("too far", lib.ttr_stream_rewind(stream, c.c_int64(7)) == ERROR and "Options::rewind" in said())
    third = stream_call(lib.ttr_stream_push, clone)
    expect("load", lib.ttr_stream_load(stream, path) == OK and lib.ttr_stream_tokens(stream, 0) == 2)
    expect("the file has the same past", stream_call(lib.ttr_stream_push, stream) == third)
for each in (stream, clone):
    lib.ttr_stream_destroy(each)
lib.ttr_plan_destroy(one)

# What is refused, with a sentence.
expect("no such layer", plan_of(b"gated-deltane")[1] == ERROR and "gated-deltanet" in said())
expect("bad settings", plan_of(b"rls", settings=b"ridge")[1] == ERROR and "name=value" in said())
expect("settings", plan_of(b"rls", settings=b"ridge=0.1,decay=0.9")[1] == OK)
expect("no plan", lib.ttr_step(None, c.byref(arguments)) == BAD_ARGUMENT and "plan" in said())
expect("no size", lib.ttr_forward(plan, c.byref(c.c_size_t(0))) == BAD_ARGUMENT and "size" in said())
s.reads[0].name = b"query"
expect("diagnose", lib.ttr_diagnose(plan, c.byref(s.arguments()), None) == 0 and "no input 'query'" in said())
expect("unknown name", s.forward() == UNKNOWN_NAME)
expect("every status has words", all(lib.ttr_status_text(i) for i in list(range(14)) + [100, 101]))
short = Shape(batch=1)
short.size = c.sizeof(c.c_size_t) + 4  # an older caller, who knows the batch alone
older = c.c_void_p()
expect("shorter structs", lib.ttr_plan_create(b"nlms", c.byref(short), None, c.byref(older)) == OK)
lib.ttr_plan_destroy(older)
lib.ttr_plan_destroy(plan)

print(f"{ran} layers, {failures} failures")
sys.exit(1 if failures else 0)
