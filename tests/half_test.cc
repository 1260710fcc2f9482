// Half types: their conversions on every instruction set, and calls with such tensors, which must be the float plan on
// rounded numbers, bit for bit.
#include <bit>
#include <cmath>

#include "layer_harness.h"
#include "simd/half_simd.h"

namespace ttr_layer_test {
namespace {

constexpr Type half_types[] = {Type::bf16, Type::f16};

// The number behind the bits, by the definition of the types; infinite exponents aside.
double value_of(Type type, std::uint16_t bits) {
  const int mantissa_bits = type == Type::bf16 ? 7 : 10, bias = type == Type::bf16 ? 127 : 15;
  const int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double size = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -size : size;
}
bool is_finite(Type type, std::uint16_t bits) {
  return type == Type::bf16 ? (bits & 0x7f80) != 0x7f80 : (bits & 0x7c00) != 0x7c00;
}

std::vector<float> widened(const HalfSimd& s, Type type, const std::vector<std::uint16_t>& in) {
  std::vector<float> out(in.size());
  (type == Type::bf16 ? s.widen_bf16 : s.widen_f16)(static_cast<std::ptrdiff_t>(in.size()), in.data(), out.data());
  return out;
}
std::vector<std::uint16_t> narrowed(const HalfSimd& s, Type type, const std::vector<float>& in) {
  std::vector<std::uint16_t> out(in.size());
  (type == Type::bf16 ? s.narrow_bf16 : s.narrow_f16)(static_cast<std::ptrdiff_t>(in.size()), in.data(), out.data());
  return out;
}

TEST(HalfTypes, EveryPatternThereAndBack) {
  std::vector<std::uint16_t> all(65536 + 3);  // an odd number: the last go another way
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const std::string& target : simd_targets())
    for (const Type type : half_types) {
      SCOPED_TRACE(target + " " + std::string(to_string(type)));
      const HalfSimd& s = half_simd(simd<float>(target));
      const std::vector<float> wide = widened(s, type, all);
      const std::vector<std::uint16_t> back = narrowed(s, type, wide);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool nan = !is_finite(type, all[i]) && (all[i] & (type == Type::bf16 ? 0x7f : 0x3ff));
        if (nan) {
          ASSERT_TRUE(std::isnan(wide[i])) << i;
          ASSERT_TRUE(std::isnan(widened(s, type, {back[i]})[0])) << i;
          continue;
        }
        const double value = is_finite(type, all[i]) ? value_of(type, all[i])
                             : all[i] & 0x8000       ? -HUGE_VAL
                                                     : HUGE_VAL;
        ASSERT_EQ(static_cast<double>(wide[i]), value) << i;
        ASSERT_EQ(back[i], all[i]) << wide[i];
      }
    }
}

TEST(HalfTypes, RoundToNearestTiesToEven) {
  for (const std::string& target : simd_targets())
    for (const Type type : half_types) {
      SCOPED_TRACE(target + " " + std::string(to_string(type)));
      const HalfSimd& s = half_simd(simd<float>(target));
      std::vector<float> numbers;
      std::vector<std::uint16_t> expected;
      const auto add = [&](float x, unsigned bits) {
        numbers.push_back(x), expected.push_back(static_cast<std::uint16_t>(bits));
        numbers.push_back(-x), expected.push_back(static_cast<std::uint16_t>(bits | 0x8000u));
      };
      for (unsigned h = 0; is_finite(type, static_cast<std::uint16_t>(h)); ++h) {
        const double low = value_of(type, static_cast<std::uint16_t>(h));
        const double high = is_finite(type, static_cast<std::uint16_t>(h + 1))
                                ? value_of(type, static_cast<std::uint16_t>(h + 1))
                                : 2 * low - value_of(type, static_cast<std::uint16_t>(h - 1));
        const float middle = static_cast<float>((low + high) / 2);
        if (static_cast<double>(middle) != (low + high) / 2) continue;  // below the smallest float
        add(middle, h % 2 == 0 ? h : h + 1);
        add(std::nextafter(middle, 0.0f), h);
        add(std::nextafter(middle, HUGE_VALF), h + 1);
      }
      EXPECT_EQ(narrowed(s, type, numbers), expected);
    }
}

// A tensor of a half type, or the floats that it stands for.
struct HalfTensor {
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;
  Extents extent;

  Tensor tensor(Type type) {
    Tensor t;
    t.data = type == Type::f32 ? static_cast<void*>(floats.data()) : halves.data();
    t.type = type, t.rank = static_cast<int>(extent.size());
    std::ptrdiff_t stride = 1;
    for (std::size_t d = extent.size(); d-- > 0;) t.extent[d] = extent[d], t.stride[d] = stride, stride *= extent[d];
    return t;
  }
};

struct HalfRun {
  Status forward = Status::ok, backward = Status::ok;
  std::map<std::string, std::vector<std::uint16_t>> outputs, gradients;
  NamedNumbers state;
};

// The problem with tensors of `type`, all numbers rounded to `rounded`; results as rounded numbers.
HalfRun run_half(const Problem& p, Type type, Type rounded, Form form,
                 const std::vector<std::string>& keep_float = {}) {
  const HalfSimd& s = half_simd(simd<float>(""));
  std::map<std::string, HalfTensor> held;
  const auto hold = [&](const std::string& name, const std::string& shape, const Numbers* numbers) {
    HalfTensor& t = held[name];
    t.extent = p.extents(shape);
    std::size_t n = 1;
    for (const std::ptrdiff_t e : t.extent) n *= static_cast<std::size_t>(e);
    t.floats.resize(n, -1);
    if (numbers)
      for (std::size_t i = 0; i < n; ++i) t.floats[i] = static_cast<float>((*numbers)[i]);
    t.halves = narrowed(s, rounded, t.floats);
    if (numbers) t.floats = widened(s, rounded, t.halves);
    const bool keep = std::find(keep_float.begin(), keep_float.end(), name) != keep_float.end();
    return t.tensor(keep ? Type::f32 : type);
  };
  Inputs in, d_out;
  Outputs out, d_in;
  for (const InputInfo& info : p.plan.inputs()) {
    in[info.name] = hold(info.name, info.shape, &p.inputs.at(info.name));
    d_in[info.name] = hold("d " + info.name, info.shape, nullptr);
  }
  for (const InputInfo& info : p.plan.outputs()) {
    out[info.name] = hold(info.name, info.shape, nullptr);
    if (info.differentiable) d_out[info.name] = hold("d " + info.name, info.shape, &p.d_outputs.at(info.name));
  }
  in.cu_seqlens = p.cu;
  const Footprint bytes = p.plan.footprint(p.time + (p.plan.tokens_kept({}) >= 0 ? 64 : 0), form);
  Guarded work(bytes.workspace), d_work(bytes.backward);
  HalfRun r;
  StateMemory state = p.initial, initial = p.initial, d_final = p.d_final;
  r.forward = p.plan.forward(in, state_of(state), out, work.workspace(), form);
  EXPECT_TRUE(work.fence_stands());
  r.backward = p.plan.backward(in, state_of(initial), d_out, state_of(d_final), d_in, {}, d_work.workspace(), form);
  EXPECT_TRUE(d_work.fence_stands());
  const auto result = [&](const std::string& name) {
    const HalfTensor& t = held.at(name);
    return type == Type::f32 ? narrowed(s, rounded, t.floats) : t.halves;
  };
  for (const InputInfo& info : p.plan.outputs()) r.outputs[info.name] = result(info.name);
  // Prepared, twice at the same addresses.
  std::vector<const void*> reads;
  std::vector<void*> writes;
  for (const InputInfo& info : p.plan.inputs()) reads.push_back(in[info.name].data);
  for (const InputInfo& info : p.plan.outputs()) writes.push_back(out[info.name].data);
  Prepared call = p.plan.prepare(in, out, form);
  StateMemory again = p.initial;
  for (int times = 0; times < 2; ++times) {
    std::copy(p.initial.begin(), p.initial.end(), again.begin());
    for (const InputInfo& info : p.plan.outputs()) {
      HalfTensor& t = held.at(info.name);
      std::fill(t.floats.begin(), t.floats.end(), 7.0f), std::fill(t.halves.begin(), t.halves.end(), 7);
    }
    EXPECT_EQ(call(reads, writes, state_of(again), work.workspace()), r.forward);
    EXPECT_TRUE(work.fence_stands());
    for (const InputInfo& info : p.plan.outputs()) EXPECT_EQ(result(info.name), r.outputs[info.name]) << info.name;
    EXPECT_TRUE(same_bits(parts_of(p.plan, again), parts_of(p.plan, state)));
  }
  for (const InputInfo& info : p.plan.inputs())
    if (info.differentiable) r.gradients[info.name] = result("d " + info.name);
  r.state = parts_of(p.plan, state);
  return r;
}

Plan half_plan(const std::string& text, const Shape& shape, std::optional<Type> tensors, int threads = 1) {
  Options options;
  options.tensors = tensors, options.threads = threads;
  return plan(text, shape, options);
}

void expect_rounded(const Problem& p, const Shape& shape, const std::string& text, Type type, Form form) {
  Problem half = p;
  half.plan = half_plan(text, shape, type);
  const HalfRun expected = run_half(p, Type::f32, type, form), r = run_half(half, type, type, form);
  EXPECT_EQ(r.forward, expected.forward);
  EXPECT_EQ(r.backward, expected.backward);
  EXPECT_EQ(r.outputs, expected.outputs) << to_string(type);
  EXPECT_EQ(r.gradients, expected.gradients) << to_string(type);
  EXPECT_TRUE(same_bits(r.state, expected.state)) << to_string(type);
}

TEST(EveryLayer, HalfTensorsAreRoundedFloats) {
  for (const Subject& subject : subjects(4)) {
    SCOPED_TRACE(subject.text);
    const Shape shape{2, 2, subject.info->grouped ? 1 : 2, 4, subject.info->square ? 4 : 3};
    const Problem p = batch_problem(half_plan(subject.text, shape, {}), 11, 3);
    for (const Type type : half_types) expect_rounded(p, shape, subject.text, type, Form::best);
    if (has_steps(p.plan))
      expect_rounded(batch_problem(half_plan(subject.text, shape, {}), 1, 3), shape, subject.text, Type::bf16,
                     Form::step);
  }
}

TEST(HalfTypes, LongAndPackedCalls) {
  for (const char* text : {"gated-deltanet", "mamba-1", "rwkv-7", "retnet"}) {
    SCOPED_TRACE(text);
    const Shape one{1, 2, 2, 4, 4}, three{3, 2, 2, 4, 4};
    expect_rounded(bare(half_plan(text, one, {}), 2500, {}, 1, 1), one, text, Type::bf16, Form::recurrent);
    expect_rounded(bare(half_plan(text, three, {}), 2500, {0, 900, 903, 2500}, 1, 1), three, text, Type::f16,
                   Form::recurrent);
  }
}

// Kernels that read rows of halves where they lie, in columns that fill vectors and in others; with two threads on three
// heads, of which the last is divided by columns.
TEST(HalfTypes, RowsWhereTheyLie) {
  for (const char* text : {"gla", "rwkv-6", "rwkv-7", "kda", "gated-deltanet", "mamba-2", "retnet", "deltanet"})
    for (const int V : {48, 37}) {
      SCOPED_TRACE(text);
      const Shape shape{1, 3, 3, find_layer(text).square ? V : 32, V};
      const Type type = V == 48 ? Type::bf16 : Type::f16;
      for (const int threads : {1, 2})
        for (const Form form : {Form::best, Form::recurrent, Form::parallel}) {
          Problem p = batch_problem(half_plan(text, shape, {}), 150, 0), half = p;
          half.plan = half_plan(text, shape, type, threads);
          const HalfRun expected = run_half(p, Type::f32, type, form), r = run_half(half, type, type, form);
          EXPECT_EQ(r.forward, Status::ok);
          EXPECT_EQ(r.outputs, expected.outputs);
          EXPECT_TRUE(same_bits(r.state, expected.state));
        }
    }
}

// Steps of more heads than one block of them has, with key heads that several share where a layer can.
TEST(HalfTypes, StepsWhereTheyLie) {
  for (const char* text :
       {"gla", "rwkv-6", "rwkv-7", "kda", "gated-deltanet", "mamba-2", "retnet", "deltanet", "dplr"})
    for (const int V : {48, 37, 160}) {
      SCOPED_TRACE(testing::Message() << text << " V " << V);
      const Shape shape{1, 18, find_layer(text).grouped ? 9 : 18, find_layer(text).square ? V : 20, V};
      const Problem p = batch_problem(half_plan(text, shape, {}), 1, 0);
      for (const Type type : half_types) {
        Problem half = p;
        half.plan = half_plan(text, shape, type);
        const HalfRun expected = run_half(p, Type::f32, type, Form::step), r = run_half(half, type, type, Form::step);
        EXPECT_EQ(r.forward, Status::ok);
        EXPECT_EQ(r.outputs, expected.outputs);
        EXPECT_TRUE(same_bits(r.state, expected.state));
      }
    }
}

// Strong gates end frames inside a chunk; those of a half type are a copy that must last until then.
TEST(HalfTypes, StrongGatesWhereTheyLie) {
  const std::pair<const char*, const char*> layers[] = {{"gla", "gk"}, {"kda", "g"}, {"dplr", "gk"}, {"rwkv-6", "w"}};
  for (const auto& [text, gate] : layers) {
    SCOPED_TRACE(text);
    const Shape shape{1, 2, 2, 32, 32};
    Problem p = batch_problem(half_plan(text, shape, {}), 150, 0), half = p;
    Numbers& gates = p.inputs.at(gate);
    for (std::size_t i = 0; i < gates.size(); ++i)
      if (i % 7 < 2) gates[i] = -6;
    half.inputs = p.inputs, half.plan = half_plan(text, shape, Type::bf16);
    const HalfRun expected = run_half(p, Type::f32, Type::bf16, Form::chunk);
    const HalfRun r = run_half(half, Type::bf16, Type::bf16, Form::chunk);
    EXPECT_EQ(r.outputs, expected.outputs);
    EXPECT_TRUE(same_bits(r.state, expected.state));
  }
}

// On the oracle the caller's tensor says how many levels there are.
TEST(HalfTypes, ExtentsThatTheCallerChooses) {
  Options options;
  options.kernel = "oracle";
  const Plan exact = plan("log-linear-attention", {1, 1, 1, 3, 2}, options);
  options.tensors = Type::bf16;
  Problem p = bare(exact, 9, {}, 16, 1), half = p;
  half.plan = plan("log-linear-attention", {1, 1, 1, 3, 2}, options);
  const HalfRun expected = run_half(p, Type::f32, Type::bf16, Form::recurrent);
  const HalfRun r = run_half(half, Type::bf16, Type::bf16, Form::recurrent);
  EXPECT_EQ(expected.forward, Status::ok);
  EXPECT_EQ(r.forward, Status::ok);
  EXPECT_EQ(r.outputs, expected.outputs);
  EXPECT_EQ(r.gradients, expected.gradients);
}

TEST(HalfTypes, AlsoForSomeTensorsOnly) {  // gates in float beside keys and values in bf16
  const Shape shape{1, 2, 2, 4, 4};
  const Plan both = half_plan("gated-deltanet", shape, Type::bf16);
  Problem p = batch_problem(both, 9, 0);
  const HalfRun expected = run_half(p, Type::bf16, Type::bf16, Form::best);
  const HalfRun r = run_half(p, Type::bf16, Type::bf16, Form::best, {"g", "beta"});
  EXPECT_EQ(r.outputs, expected.outputs);
  EXPECT_EQ(r.gradients, expected.gradients);
}

TEST(HalfTypes, ErrorsSayWhatToSet) {
  const Plan plain = plan("nlms", {1, 1, 1, 2, 2});
  std::vector<bf16> halves(8);
  std::vector<float> floats(8);
  std::vector<std::byte> state(plain.footprint(1).state), work(plain.footprint(1).workspace);
  Inputs in;
  in["q"] = view(halves.data(), 1, 1, 1, 2);
  in["k"] = view(floats.data(), 1, 1, 1, 2), in["v"] = view(floats.data(), 1, 1, 1, 2);
  EXPECT_EQ(plain.diagnose(in, {state.data(), state.size()}, {}, {work.data(), work.size()}),
            "q is bf16 but the plan takes f32; set Options::tensors");
  Options options;
  options.type = Type::bf16;
  EXPECT_THROW(plan("nlms", {}, options), Error);
  options.type = Type::f64, options.tensors = Type::f16;
  EXPECT_THROW(plan("nlms", {}, options), Error);
  options.type = Type::f32, options.tensors = Type::f64;
  EXPECT_THROW(plan("nlms", {}, options), Error);
}

}  // namespace
}  // namespace ttr_layer_test
