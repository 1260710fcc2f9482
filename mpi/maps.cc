#include "mpi/maps.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "mpi/groups.h"
#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

// What the map of a kernel is; by the name that Plan::kernel() has for its family.
enum class Kind { none, head, rows, entries, mixed, dense, levels };
Kind kind_of(std::string_view family) {
  struct Row {
    std::string_view family;
    Kind kind;
  };
  constexpr Row table[] = {{"decay", Kind::head}, {"squares", Kind::head},        {"least_squares", Kind::head},
                           {"gated", Kind::rows}, {"elementwise", Kind::entries}, {"delta", Kind::dense},
                           {"dplr", Kind::dense}, {"momentum", Kind::dense},      {"log_linear", Kind::levels}};
  for (const Row& row : table)
    if (row.family == family) return row.kind;
  return Kind::none;
}

// The values that a value is made of, itself included.
class Origins {
 public:
  explicit Origins(const Pipeline& p) : maker_(p.values.size(), nullptr) {
    for (const Step& step : p.steps)
      for (const int result : {step.result, step.second_result, step.third_result})
        if (result >= 0) maker_[static_cast<std::size_t>(result)] = &step;
  }
  std::set<int> of(int value) const {
    std::set<int> all;
    std::vector<int> open = {value};
    while (!open.empty()) {
      const int v = open.back();
      open.pop_back();
      if (v < 0 || !all.insert(v).second) continue;
      if (const Step* step = maker_[static_cast<std::size_t>(v)])
        open.insert(open.end(), step->operands.begin(), step->operands.end());
    }
    return all;
  }
  bool has_state(int value) const {
    const Step* step = maker_[static_cast<std::size_t>(value)];
    return step && step->kernel && step->state >= 0;
  }

 private:
  std::vector<const Step*> maker_;
};

// The kind of the whole plan.
Kind claimed(const Plan& plan) {
  const Plan::Body& body = *plan.body();
  const Pipeline& p = body.pipeline;
  if (p.noncausal || p.history || p.states.empty() || body.options.state_type || body.options.rewind > 0)
    return Kind::none;
  const Origins origins(p);
  Kind all = Kind::none;
  std::size_t kernels = 0;
  for (const Step& step : p.steps) {
    if (!step.kernel || step.state < 0) continue;
    Kind kind = kind_of(step.kernel->name);
    if (kind == Kind::none) return Kind::none;
    ++kernels;
    for (std::size_t slot = 0; slot < step.operands.size(); ++slot)
      for (const int value : origins.of(step.operands[slot])) {
        if (origins.has_state(value)) return Kind::none;  // not affine in the two states together
        if (!p.values[static_cast<std::size_t>(value)].axes.has('V') || slot == Slot::v) continue;
        if (kind == Kind::dense || kind == Kind::levels) return Kind::none;  // columns differ
        kind = Kind::entries;
      }
    all = all == Kind::none ? kind : std::max(all, kind);
  }
  if ((all == Kind::dense || all == Kind::levels) && kernels > 1) return Kind::none;
  // A rotation has two parts that mix; least squares has two that do not.
  for (const Step& step : p.steps)
    if (step.kernel && step.kernel->name == "elementwise" && p.states.size() != kernels) {
      if (kernels != 1 || p.states.size() != 2 || p.states[0].extent != p.states[1].extent) return Kind::none;
      all = Kind::mixed;
    }
  for (const StatePart& part : p.states) {
    if (part.type != p.states[0].type || (part.type != Type::f32 && part.type != Type::f64)) return Kind::none;
    if (all == Kind::dense && (part.info.shape.size() != 7 || part.info.shape.substr(0, 3) != "B H" ||
                               part.info.shape.back() != 'V' || part.extent[1] != p.states[0].extent[1]))
      return Kind::none;
    if (all == Kind::levels && (p.states.size() > 1 || part.info.shape.substr(0, 5) != "B H L")) return Kind::none;
  }
  return all;
}

// Of one unit: the parts, one after another [P][U][K, V], as the matrix [P K, V].
template <class T>
void rows_of(const MapLayout& x, const T* states, std::size_t unit, T* rows, bool back) {
  for (std::size_t p = 0; p < x.parts.size(); ++p) {
    T* part = const_cast<T*>(states) + x.parts[p].offset + unit * x.K * x.V;
    T* own = rows + p * x.K * x.V;
    if (back) std::copy_n(own, x.K * x.V, part);
    else std::copy_n(part, x.K * x.V, own);
  }
}

// later becomes the two as one; backwards the "earlier" element is that of later tokens.
template <class T>
void compose(const MapLayout& x, const Simd<T>& simd, const T* earlier, T* later, bool backwards) {
  const T *A1 = earlier, *B1 = earlier + x.map;
  T *A2 = later, *B2 = later + x.map;
  if (x.n == 0) {
    for (const MapLayout::Part& part : x.parts) {
      for (std::size_t i = 0; i < part.numbers; ++i)
        B2[part.offset + i] += A2[part.at + part.factor[i]] * B1[part.offset + i];
      for (std::size_t i = 0; i < part.factors; ++i) A2[part.at + i] *= A1[part.at + i];
    }
    return;
  }
  std::vector<T> product(x.n * x.n), from(x.n * x.V), to(x.n * x.V);
  const auto n = static_cast<std::ptrdiff_t>(x.n), V = static_cast<std::ptrdiff_t>(x.V);
  for (std::size_t u = 0; u < x.units; ++u) {
    const T* first = A1 + u * x.n * x.n;
    T* second = A2 + u * x.n * x.n;
    rows_of(x, B1, u, from.data(), false), rows_of(x, B2, u, to.data(), false);
    (backwards ? simd.gemm_tn : simd.gemm_nn)(n, V, n, 1, second, n, from.data(), V, 1, to.data(), V);
    rows_of(x, B2, u, to.data(), true);
    simd.gemm_nn(n, n, n, 1, backwards ? first : second, n, backwards ? second : first, n, 0, product.data(), n);
    std::copy(product.begin(), product.end(), second);
  }
}

// Where the slot j of a sequence of `begin` tokens is when there are `end`: its oldest token's highest digit that differs.
std::size_t slot_after(std::int64_t begin, std::int64_t end, std::size_t j) {
  const std::int64_t oldest = begin >> (j + 1) << (j + 1);
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(end ^ oldest))) - 1;
}

// As compose, of levels: a head [L, K V] fades as one, and its slots go where the numbers of tokens say.
template <class T>
void compose_levels(const MapLayout& x, const std::int64_t* tokens, const T* earlier, T* later, bool backwards) {
  const std::size_t heads = x.units / x.batch, slot = x.state / x.units / x.levels;
  for (std::size_t u = 0; u < x.units; ++u) {
    const std::int64_t begin = tokens[u / heads], end = tokens[x.batch + u / heads];
    const T factor = later[u];
    const T* from = earlier + x.map + u * x.levels * slot;
    T* to = later + x.map + u * x.levels * slot;
    for (std::size_t j = 0; j < x.levels && begin > 0 && end >= begin; ++j) {
      if (!(begin >> j & 1)) continue;
      const std::size_t then = slot_after(begin, end, j);
      if (then >= x.levels) continue;  // a call that is refused: more tokens than levels have room for
      const T* source = from + (backwards ? then : j) * slot;
      T* target = to + (backwards ? j : then) * slot;
      for (std::size_t i = 0; i < slot; ++i) target[i] += factor * source[i];
    }
    later[u] *= earlier[u];
  }
}

std::size_t numbers_in(const Tensor& t) {
  std::size_t n = 1;
  for (int d = 0; d < t.rank; ++d) n *= static_cast<std::size_t>(t.extent[static_cast<std::size_t>(d)]);
  return n;
}

// Which number of `small` belongs to each number of `large`: extents are the same or 1. Empty if they are neither.
std::vector<std::uint32_t> spread(const Tensor& large, const Tensor& small) {
  if (large.rank != small.rank) return {};
  std::vector<std::uint32_t> index(numbers_in(large), 0);
  for (std::size_t i = 0; i < index.size(); ++i) {
    std::size_t rest = i, at = 0, stride = 1;
    for (int d = large.rank; d-- > 0;) {
      const auto n = static_cast<std::size_t>(large.extent[static_cast<std::size_t>(d)]),
                 m = static_cast<std::size_t>(small.extent[static_cast<std::size_t>(d)]);
      if (m != n && m != 1) return {};
      if (m > 1) at += rest % n * stride;
      stride *= m, rest /= n;
    }
    index[i] = static_cast<std::uint32_t>(at);
  }
  return index;
}

void write_counted(const Plan& plan, State state, const std::vector<std::int64_t>& counts) {
  std::memcpy(plan.state_tensor(state, counted_part).data, counts.data(), counts.size() * sizeof(std::int64_t));
}

}  // namespace

struct Maps::Body {
  Plan plan;   // of the layer
  Plan maker;  // with other columns: it makes the map
  MapLayout layout;
  std::vector<std::byte> state, d_final, d_initial, work;

  Body(const Plan& p, const Plan& m) : plan(p), maker(m) {}
  State of(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

  std::byte* numbers(std::byte* element) const {
    return element + (layout.counts.size() * layout.batch + layout.span()) * sizeof(std::int64_t);
  }

  // Inputs of the plan that makes maps: windows on the layer's, and zeros for values that are too many.
  Inputs narrowed(const Inputs& inputs) const {
    static constexpr double zero = 0;  // of any type
    Inputs in;
    in.cu_seqlens = inputs.cu_seqlens;
    for (const InputInfo& info : plan.inputs()) {
      ConstTensor t = inputs.get(info.name);
      if (!t) continue;
      std::size_t d = 0;
      for (const char letter : info.shape) {
        if (letter == ' ') continue;
        if (letter == 'K') t.extent[d] = maker.shape().key_dim;
        if (letter == 'V') t.extent[d] = maker.shape().value_dim;
        ++d;
      }
      if (layout.n > 0 && !layout.mixed && info.shape.find('V') != std::string::npos) t.data = &zero, t.stride = {};
      in[info.name] = t;
    }
    return in;
  }
};

Maps::Maps(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Maps::~Maps() = default;
Maps::Maps(Maps&&) noexcept = default;
Maps& Maps::operator=(Maps&&) noexcept = default;

// The plan that makes maps, and with it their layout; null if its sizes do not fit those of the layer.
std::unique_ptr<Maps::Body> Maps::try_shape(const Plan& plan, const Shape& shape, bool dense, bool mixed,
                                            bool levels) {
  const TriedPlan maker = try_plan(plan.name(), shape, plan.options());
  if (!maker || maker.plan->inputs().size() != plan.inputs().size()) return nullptr;
  // Other sizes must change nothing but axes K and V: those of features may depend on them.
  for (const InputInfo& info : plan.inputs()) {
    const auto mine = plan.extents(info.shape, 1), other = maker.plan->extents(info.shape, 1);
    const Axes axes(info.shape);
    for (std::size_t d = 0; d < mine.size(); ++d)
      if (axes[d] != 'K' && axes[d] != 'V' && mine[d] != other[d]) return nullptr;
  }
  auto body = std::make_unique<Body>(plan, *maker.plan);
  MapLayout& x = body->layout;
  x.type = plan.body()->pipeline.states[0].type, x.batch = static_cast<std::size_t>(plan.shape().batch);
  std::vector<std::byte> state(plan.footprint(1).state);
  const State whole{state.data(), state.size()};
  body->state.resize(maker.plan->footprint(1).state);
  body->d_final = body->d_initial = body->state;
  if (plan.reset(whole) != Status::ok || maker.plan->reset(body->of(body->state)) != Status::ok) return nullptr;
  for (const StateInfo& info : plan.states()) {
    const Tensor all = plan.state_tensor(whole, info.name);
    if (all.type == Type::i64) {
      if (!levels || info.name != counted_part) x.counts.push_back(info.name);
      continue;
    }
    MapLayout::Part part;
    part.name = info.name, part.numbers = numbers_in(all), part.offset = x.state;
    x.state += part.numbers;
    if (mixed) {
      x.K = x.V = 1, x.units = part.numbers;
    } else if (levels) {
      x.levels = static_cast<std::size_t>(all.extent[2]);
      x.units = x.map = static_cast<std::size_t>(all.extent[0] * all.extent[1]);
    } else if (!dense) {
      const Tensor own = maker.plan->state_tensor(body->of(body->state), info.name);
      part.factors = numbers_in(own), part.at = x.map;
      if (part.factors > UINT32_MAX) return nullptr;
      part.factor = spread(all, own);
      if (part.factor.empty()) return nullptr;
      x.map += part.factors;
    } else {
      x.K = static_cast<std::size_t>(all.extent[2]), x.V = static_cast<std::size_t>(all.extent[3]);
      x.units = static_cast<std::size_t>(all.extent[0] * all.extent[1]);
    }
    x.parts.push_back(std::move(part));
  }
  x.mixed = mixed;
  if (dense || mixed) x.n = x.parts.size() * x.K, x.map = x.units * x.n * x.n;
  return body;
}

std::optional<Maps> Maps::of(const Plan& plan) {
  const Kind kind = claimed(plan);
  if (kind == Kind::none) return std::nullopt;
  if (kind == Kind::mixed) {
    std::unique_ptr<Body> whole = try_shape(plan, plan.shape(), false, true);
    if (!whole) return std::nullopt;
    return Maps(std::move(whole));
  }
  Shape shape = plan.shape();
  const auto& states = plan.body()->pipeline.states;
  const bool dense = kind == Kind::dense, levels = kind == Kind::levels;
  if (dense) shape.value_dim = static_cast<int>(states.size()) * static_cast<int>(states[0].extent[1]);
  if (kind == Kind::rows || kind == Kind::head || levels) shape.value_dim = 1;
  if (kind == Kind::head || levels) shape.key_dim = 1;
  std::unique_ptr<Body> body = try_shape(plan, shape, dense, false, levels);
  if (!body && (kind == Kind::head || levels)) {  // features of one key are not one feature
    shape.key_dim = plan.shape().key_dim;
    body = try_shape(plan, shape, false, false, levels);
  }
  if (!body && !dense) body = try_shape(plan, plan.shape(), false, false, levels);
  if (!body) return std::nullopt;
  return Maps(std::move(body));
}

std::size_t Maps::bytes() const { return body_->layout.bytes(); }
bool Maps::dense() const { return body_->layout.n > 0 && !body_->layout.mixed; }
bool Maps::by_position() const { return body_->layout.levels > 0; }

void Maps::compose(const std::byte* first, std::byte* second, bool backwards) const {
  const MapLayout& x = body_->layout;
  const Plan::Body& plan = *body_->plan.body();
  const std::size_t counts = x.counts.size() * x.batch, span = x.span() * sizeof(std::int64_t);
  for (std::size_t i = 0; i < counts; ++i)
    reinterpret_cast<std::int64_t*>(second)[i] += reinterpret_cast<const std::int64_t*>(first)[i];
  first += counts * sizeof(std::int64_t), second += counts * sizeof(std::int64_t);
  const auto both = [&](const auto& simd, const auto* a, auto* b) {
    if (x.levels == 0) mpi::compose(x, simd, a, b, backwards);
    else compose_levels(x, reinterpret_cast<const std::int64_t*>(second), a, b, backwards);
  };
  if (x.type == Type::f64)
    both(*plan.simd_f64, reinterpret_cast<const double*>(first + span), reinterpret_cast<double*>(second + span));
  else both(*plan.simd_f32, reinterpret_cast<const float*>(first + span), reinterpret_cast<float*>(second + span));
  // The two as one begin where the earlier tokens do, and end where the later ones do.
  const std::size_t half = span / 2, at = backwards ? half : 0;
  std::memcpy(second + at, first + at, half);
}

Status Maps::make(const Inputs& inputs, std::int64_t tokens, Form form, const Place& place, std::byte* element) {
  Body& b = *body_;
  const MapLayout& x = b.layout;
  const std::size_t size = size_of(x.type);
  std::byte* A = b.numbers(element);
  const Inputs in = b.narrowed(inputs);
  const bool has =
      form == Form::best || std::find(b.maker.forms().begin(), b.maker.forms().end(), form) != b.maker.forms().end();
  if (!has) form = Form::best;
  const Footprint room = b.maker.footprint(tokens, form);
  b.work.resize(std::max(b.work.size(), dense() ? room.workspace : room.backward));
  const Workspace work{b.work.data(), b.work.size()};
  Status status = b.maker.zero(b.of(b.state));
  if (status != Status::ok) return status;
  if (x.n == 0) {
    status = b.maker.reset(b.of(b.state));
    if (status == Status::ok) status = b.maker.zero(b.of(b.d_final));
    if (status != Status::ok) return status;
    for (const MapLayout::Part& part : x.parts) fill(b.maker.state_tensor(b.of(b.d_final), part.name), 1);
    if (x.levels > 0) write_counted(b.maker, b.of(b.state), place.begin);
    status = b.maker.backward(in, b.of(b.state), {}, b.of(b.d_final), {}, b.of(b.d_initial), work, form);
    if (x.levels > 0) {  // any slot that is live at the beginning; where there is none, nothing fades
      std::memcpy(A - x.batch * sizeof(std::int64_t), place.end.data(), x.batch * sizeof(std::int64_t));
      std::memcpy(A - x.span() * sizeof(std::int64_t), place.begin.data(), x.batch * sizeof(std::int64_t));
      const Tensor slots = b.maker.state_tensor(b.of(b.d_initial), x.parts[0].name);
      for (std::size_t u = 0; u < x.units; ++u) {
        const std::int64_t begin = place.begin[u / (x.units / x.batch)];
        const std::ptrdiff_t live = begin > 0 ? std::countr_zero(static_cast<std::uint64_t>(begin)) : 0;
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(u) * slots.stride[1] + live * slots.stride[2];
        std::memcpy(A + u * size, static_cast<const std::byte*>(slots.data) + at * static_cast<std::ptrdiff_t>(size),
                    size);
      }
      return status;
    }
    for (const MapLayout::Part& part : x.parts)
      std::memcpy(A + part.at * size, b.maker.state_tensor(b.of(b.d_initial), part.name).data, part.factors * size);
    return status;
  }
  if (x.mixed) {  // a gradient of ones for part i of the end is row i of every entry's map
    status = b.maker.reset(b.of(b.state));
    for (std::size_t i = 0; i < x.n && status == Status::ok; ++i) {
      status = b.maker.zero(b.of(b.d_final));
      if (status != Status::ok) break;
      fill(b.maker.state_tensor(b.of(b.d_final), x.parts[i].name), 1);
      status = b.maker.backward(in, b.of(b.state), {}, b.of(b.d_final), {}, b.of(b.d_initial), work, form);
      for (std::size_t j = 0; j < x.n; ++j) {
        const std::byte* row =
            static_cast<const std::byte*>(b.maker.state_tensor(b.of(b.d_initial), x.parts[j].name).data);
        for (std::size_t u = 0; u < x.units; ++u)
          std::memcpy(A + ((u * x.n + i) * x.n + j) * size, row + u * size, size);
      }
    }
    return status;
  }
  // Part j of the start is the unit vectors in columns j K .. (j + 1) K - 1.
  for (std::size_t j = 0; j < x.parts.size(); ++j) {
    Tensor part = b.maker.state_tensor(b.of(b.state), x.parts[j].name);
    part.data = static_cast<std::byte*>(part.data) + j * x.K * size;
    part.extent[2] = 1, part.extent[3] = 1;
    for (std::size_t i = 0; i < x.K; ++i) {
      fill(part, 1);
      part.data =
          static_cast<std::byte*>(part.data) + (part.stride[2] + part.stride[3]) * static_cast<std::ptrdiff_t>(size);
    }
  }
  status = b.maker.forward(in, b.of(b.state), {}, work, form);
  for (std::size_t i = 0; i < x.parts.size(); ++i) {  // [U][K, n] of part i are rows i K .. of the maps [n, n]
    const std::byte* rows = static_cast<const std::byte*>(b.maker.state_tensor(b.of(b.state), x.parts[i].name).data);
    const std::size_t block = x.K * x.n * size;
    for (std::size_t u = 0; u < x.units; ++u)
      std::memcpy(A + u * x.n * x.n * size + i * block, rows + u * block, block);
  }
  return status;
}

std::vector<std::int64_t> Maps::counted(const Plan& plan, ConstState state) const {
  if (!by_position()) return {};
  const State source{const_cast<void*>(state.data), state.bytes};  // only read
  const auto* at = static_cast<const std::int64_t*>(plan.state_tensor(source, counted_part).data);
  return {at, at + plan.shape().batch};
}

void Maps::put(State state, const Place& place) const {
  if (by_position()) write_counted(body_->plan, state, place.begin);
}

void Maps::set(ConstState state, std::byte* element) const {
  const MapLayout& x = body_->layout;
  const State source{const_cast<void*>(state.data), state.bytes};  // only read
  std::byte* at = element;
  for (const std::string& name : x.counts) {
    std::memcpy(at, body_->plan.state_tensor(source, name).data, x.batch * sizeof(std::int64_t));
    at += x.batch * sizeof(std::int64_t);
  }
  at += x.span() * sizeof(std::int64_t) + x.map * size_of(x.type);
  for (const MapLayout::Part& part : x.parts)
    std::memcpy(at + part.offset * size_of(x.type), body_->plan.state_tensor(source, part.name).data,
                part.numbers * size_of(x.type));
}

void Maps::get(const std::byte* element, State state) const {
  const MapLayout& x = body_->layout;
  const std::byte* at = element;
  for (const std::string& name : x.counts) {
    std::memcpy(body_->plan.state_tensor(state, name).data, at, x.batch * sizeof(std::int64_t));
    at += x.batch * sizeof(std::int64_t);
  }
  at += x.span() * sizeof(std::int64_t) + x.map * size_of(x.type);
  for (const MapLayout::Part& part : x.parts)
    std::memcpy(body_->plan.state_tensor(state, part.name).data, at + part.offset * size_of(x.type),
                part.numbers * size_of(x.type));
}

}  // namespace ttr::mpi
