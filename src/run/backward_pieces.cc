#include "run/backward_pieces.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "families/family.h"
#include "run/bind.h"
#include "run/saved.h"
#include "run/strided.h"
#include "run/time_blocks.h"
#include "simd/half_simd.h"

namespace ttr {
namespace {

using families::Sequence;

constexpr double most_factor = 2;                // of the tensors of a call: more scratch than this goes in pieces
constexpr double usual_time = 4096;              // for which a piece and the kept states should take about the same
constexpr std::int64_t least = 64, most = 1024;  // tokens of a piece

double bytes_of_tokens(const Plan::Body& body, const std::vector<Axes>& list) {
  double bytes = 0;
  for (const Axes& axes : list)
    if (axes.has_any("TP")) bytes += static_cast<double>(body.elements(axes, 1, 1) * size_of(body.options.type));
  return bytes;
}

// Bytes that backward takes for one more token of one sequence, on one thread.
double growth(const Plan::Body& body) {
  constexpr std::int64_t some = 1024;
  double values = 0, kernel = 0;
  for (const Value& v : body.pipeline.values)
    if (v.from == Value::From::step)
      values += 2 * static_cast<double>(body.elements(v.axes, 1, 1) * size_of(body.options.type));
  for (const Step& step : body.pipeline.steps) {
    if (!step.kernel) continue;
    const auto bytes = [&](std::int64_t time) {
      const auto of = [&](const auto& calls) { return calls.workspace(body, step, time, Form::best, true); };
      return static_cast<double>(body.options.type == Type::f32 ? of(step.kernel->f32) : of(step.kernel->f64));
    };
    kernel = std::max(kernel, (bytes(2 * some * step.pairs) - bytes(some * step.pairs)) / static_cast<double>(some));
  }
  return values + kernel;
}

// Pieces of a call: packed sequences are not cut where others are, and two neighbours are longer than one piece.
std::ptrdiff_t most_pieces(const Plan::Body& body, std::int64_t time) {
  const std::int64_t length = body.backward_piece;
  return static_cast<std::ptrdiff_t>(body.shape.batch == 1 ? (time + length - 1) / length : 2 * time / length + 2);
}

bool has_state(const Plan::Body& body) { return !body.pipeline.states.empty(); }

struct Piece {
  std::ptrdiff_t begin, end;
};

// A tensor of the caller, tokens begin .. end-1 of it.
template <class AnyTensor>
AnyTensor tokens_of(const Plan::Body& body, const Axes& axes, AnyTensor tensor, const Piece& piece) {
  using Byte = std::conditional_t<std::is_same_v<AnyTensor, ConstTensor>, const std::byte, std::byte>;
  for (std::size_t d = 0; d < axes.size() && static_cast<int>(d) < tensor.rank; ++d) {
    if (axes[d] != 'T' && axes[d] != 'P') continue;
    const std::ptrdiff_t pairs = axes[d] == 'P' ? body.pipeline.pairs : 1;
    tensor.extent[d] = (piece.end - piece.begin) * pairs;
    if (tensor.data)
      tensor.data = static_cast<Byte*>(tensor.data) +
                    piece.begin * pairs * tensor.stride[d] * static_cast<std::ptrdiff_t>(size_of(tensor.type));
  }
  return tensor;
}

template <class List>
void slice(const Plan::Body& body, const std::vector<InputInfo>& infos, const std::vector<Axes>& axes,
           const List& from, const Piece& piece, List& to) {
  to.clear();
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (const auto* const tensor = from.find(infos[i].name, static_cast<int>(i)))
      to[infos[i].name] = tokens_of(body, axes[i], *tensor, piece);
}

// Gradients of parameters are sums over all pieces. Those of a half type are summed in float, and rounded once.
class Sums {
 public:
  Sums(const Plan::Body& body, const Call& call, Arena& arena, Outputs& gradients) : simd_(*body.simd_f32) {
    const HalfSimd& convert = half_simd(simd_);
    for (std::size_t i = 0; i < body.pipeline.inputs.size(); ++i) {
      const Tensor tensor = gradients.get(body.pipeline.inputs[i].name);
      if (!tensor || tensor.type == body.options.type || body.pipeline.input_axes[i].has_any("TP")) continue;
      Sum& sum = sums_[static_cast<std::size_t>(count_++)] = {tensor, nullptr, {}};
      std::ptrdiff_t numbers = 1;
      for (int d = tensor.rank; d-- > 0;) {
        sum.stride[static_cast<std::size_t>(d)] = numbers;
        numbers *= tensor.extent[static_cast<std::size_t>(d)];
      }
      sum.numbers = arena.take<float>(numbers);
      std::fill_n(sum.numbers, numbers, 0.0f);
      if (call.gradients == Gradients::add)
        each(sum, [&](std::uint16_t* theirs, float* own) {
          (tensor.type == Type::bf16 ? convert.widen_bf16 : convert.widen_f16)(1, theirs, own);
        });
      Tensor& own = gradients[body.pipeline.inputs[i].name];
      own.data = sum.numbers, own.type = Type::f32, own.stride = sum.stride;
    }
  }
  void finish() {
    const HalfSimd& convert = half_simd(simd_);
    for (int i = 0; i < count_; ++i) {
      const Sum& sum = sums_[static_cast<std::size_t>(i)];
      each(sum, [&](std::uint16_t* theirs, const float* own) {
        (sum.tensor.type == Type::bf16 ? convert.narrow_bf16 : convert.narrow_f16)(1, own, theirs);
      });
    }
  }
  static void count(const Plan::Body& body, Arena& arena) {
    if (!body.options.tensors || *body.options.tensors == body.options.type) return;
    for (const Axes& axes : body.pipeline.input_axes)
      if (!axes.has_any("TP"))
        arena.take<float>(static_cast<std::ptrdiff_t>(body.elements(axes, body.shape.batch, 1, 1)));
  }

 private:
  struct Sum {
    Tensor tensor;
    float* numbers;
    PerAxis stride;
  };
  template <class Visit>
  static void each(const Sum& sum, Visit&& visit) {
    const Tensor& t = sum.tensor;
    const std::ptrdiff_t step = step_of(t.rank, t.stride);
    for_each_row<2>(t.rank, t.extent, {&t.stride, &sum.stride}, [&](const auto& offset, std::ptrdiff_t n) {
      for (std::ptrdiff_t j = 0; j < n; ++j)
        visit(static_cast<std::uint16_t*>(t.data) + offset[0] + j * step, sum.numbers + offset[1] + j);
    });
  }

  const Simd<float>& simd_;
  std::array<Sum, Outputs::capacity> sums_{};
  int count_ = 0;
};

// The memory of a call in pieces; from an Arena that only counts: how much.
struct PieceMemory {
  PieceMemory(const Plan::Body& body, std::int64_t time, Arena& arena) {
    const std::ptrdiff_t batch = body.shape.batch;
    bytes = has_state(body) ? static_cast<std::ptrdiff_t>((body.layout.bytes(0) + 63) / 64 * 64) : 0;
    sequences = arena.take<Sequence>(batch), cu = arena.take<std::int64_t>(batch + 1);
    pieces = arena.take<Piece>(most_pieces(body, time)), before = arena.take<std::ptrdiff_t>(batch);
    starts = arena.take<std::byte>(bytes * most_pieces(body, time));
    for (std::byte*& d : d_states) d = arena.take<std::byte>(bytes);
  }
  Sequence* sequences;
  std::int64_t* cu;
  Piece* pieces;
  std::ptrdiff_t* before;
  std::ptrdiff_t bytes;  // of a state
  std::byte *starts, *d_states[2];
};

}  // namespace

std::int64_t piece_length(const Plan::Body& body) {
  if (!goes_in_blocks(body, Form::best)) return 0;
  if (!has_state(body)) return block_length(body, Form::best);
  const double one_token = growth(body), tensors = bytes_of_tokens(body, body.pipeline.input_axes) +
                                                   bytes_of_tokens(body, body.pipeline.output_axes);
  if (one_token <= most_factor * tensors) return 0;
  double state = 0;
  for (const StatePart& part : body.pipeline.states) state += static_cast<double>(numbers(part) * size_of(part.type));
  const std::int64_t unit = time_unit(body);
  const auto length = static_cast<std::int64_t>(std::sqrt(usual_time * state / one_token));
  return (std::clamp(length, least, most) + unit - 1) / unit * unit;
}

bool goes_in_pieces(const Plan::Body& body, std::int64_t time, Form form) noexcept {
  return body.backward_piece > 0 && time > body.backward_piece && form != Form::parallel && form != Form::scan;
}

std::size_t pieces_bytes(const Plan::Body& body, std::int64_t time, Form form) {
  Arena arena;
  PieceMemory(body, time, arena);
  Sums::count(body, arena);
  const std::int64_t length = body.backward_piece;
  const auto bytes = [&](bool backward) { return workspace_bytes(body, length, length, 0, form, backward); };
  return arena.bytes() + std::max(bytes(true), has_state(body) ? bytes(false) : 0);
}

Status backward_in_pieces(const Plan::Body& body, const Call& call) noexcept {
  const Pipeline& p = body.pipeline;
  Arena arena(call.workspace);
  const PieceMemory memory(body, call.time, arena);
  const bool packed = !call.inputs->cu_seqlens.empty(), state = has_state(body);
  const auto N = static_cast<std::size_t>(body.shape.batch);
  for (std::size_t n = 0; n < N; ++n)
    memory.sequences[n] = packed ? Sequence{0, static_cast<std::ptrdiff_t>(call.inputs->cu_seqlens[n]),
                                            static_cast<std::ptrdiff_t>(call.inputs->cu_seqlens[n + 1])}
                                 : Sequence{static_cast<std::ptrdiff_t>(n), 0, call.time};
  std::ptrdiff_t count = 0;
  (void)each_block(call.time, {memory.sequences, N}, packed, body.backward_piece,
                   [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
                     memory.pieces[count++] = {begin, end};
                     return Status::ok;
                   });

  Outputs gradients = *call.d_inputs;
  Sums sums(body, call, arena, gradients);
  if (call.gradients == Gradients::write)  // the others are cleared or written by the piece they belong to
    for (std::size_t i = 0; i < p.inputs.size(); ++i)
      if (!p.input_axes[i].has_any("TP")) clear_tensor(gradients.get(p.inputs[i].name));

  Inputs in, d_out;
  Outputs d_in, nothing;
  Call part = call;
  part.inputs = &in, part.workspace = arena.rest();
  const auto set = [&](const Piece& piece) {
    slice(body, p.inputs, p.input_axes, *call.inputs, piece, in);
    part.time = piece.end - piece.begin, part.pairs = part.time * p.pairs;
    for (std::size_t n = 0; n < N; ++n) {
      const Sequence& s = memory.sequences[n];
      memory.before[n] = std::clamp(piece.begin, s.begin, s.end) - s.begin;
    }
    if (!packed) return;
    memory.cu[0] = 0;
    for (std::size_t n = 0; n < N; ++n)
      memory.cu[n + 1] = std::clamp(memory.sequences[n].end, piece.begin, piece.end) - piece.begin;
    in.cu_seqlens = {memory.cu, N + 1};
  };
  const std::size_t size = body.layout.bytes(0);
  const auto start = [&](std::ptrdiff_t i) { return State{memory.starts + i * memory.bytes, size}; };
  Status worst = Status::ok;
  const auto note = [&](Status s) {
    if (s != Status::ok && (worst == Status::ok || worst == Status::out_of_domain)) worst = s;
    return s == Status::ok || s == Status::out_of_domain;
  };
  if (state) std::memcpy(start(0).data, call.state.data, size);
  part.outputs = &nothing, part.d_outputs = nullptr, part.d_inputs = nullptr, part.saved = {};
  part.whole = memory.sequences, part.before = memory.before;
  const bool found = call.saved.data && saves_all_states(body, call.form);
  for (std::ptrdiff_t i = 0; state && i + 1 < count; ++i) {
    std::memcpy(start(i + 1).data, start(found ? 0 : i).data, size);
    if (found) {
      set(memory.pieces[i + 1]);
      saved_state(body, call, memory.sequences, memory.before, start(i + 1));
      continue;
    }
    set(memory.pieces[i]);
    part.state = start(i + 1);
    if (!note(run_forward(body, part))) return worst;
  }
  part.outputs = nullptr, part.d_outputs = &d_out, part.d_inputs = &d_in, part.sums_parameters = true;
  part.saved = call.saved;
  for (std::ptrdiff_t i = count; i-- > 0;) {
    set(memory.pieces[i]);
    slice(body, p.outputs, p.output_axes, *call.d_outputs, memory.pieces[i], d_out);
    slice(body, p.inputs, p.input_axes, gradients, memory.pieces[i], d_in);
    if (state) {
      part.state = start(i);
      if (i + 1 < count) part.d_final = {memory.d_states[(i + 1) % 2], size};
      part.d_initial = i > 0 ? State{memory.d_states[i % 2], size} : call.d_initial;
    }
    if (!note(run_backward(body, part))) return worst;
  }
  sums.finish();
  return worst;
}

}  // namespace ttr
