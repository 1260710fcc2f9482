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
                   ("run_jobs", c.c_void_p), ("executor", c.c_void_p)])


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
expect("layout", lib.ttr_saved_state_layout() == 1)
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
