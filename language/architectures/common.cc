#include <algorithm>
#include <cmath>

#include "language/architectures/architecture.h"
#include "ttr/status.h"

namespace ttr::model {

#define TTR_ARCHITECTURE(name) extern const Architecture name;
#include "language/architectures/architectures.def"
#undef TTR_ARCHITECTURE

const std::vector<const Architecture*>& architectures() {
  static const std::vector<const Architecture*> list = {
#define TTR_ARCHITECTURE(name) &name,
#include "language/architectures/architectures.def"
#undef TTR_ARCHITECTURE
  };
  return list;
}

const Architecture& build_graph(const Weights& weights, const Settings& overrides, Graph& graph) {
  Settings settings = weights.settings();
  for (const auto& [key, value] : overrides.all()) settings.set(key, value);
  Source source(weights, std::move(settings));
  for (const Architecture* one : architectures())
    if (one->recognises(source)) {
      one->build(source, graph);
      source.all_used();
      for (const auto& [key, value] : overrides.all())
        if (!source.settings().asked().count(key)) {
          std::string known;
          for (const std::string& name : source.settings().asked()) known += (known.empty() ? "" : ", ") + name;
          throw Error("the setting '" + key + "' is none that " + one->name + " reads; it reads " + known, key);
        }
      return *one;
    }
  const std::string key = weights.gguf() ? "general.architecture" : "model_type";
  const std::string said = source.settings().text(key, "");
  std::string known;
  for (const Architecture* one : architectures()) known += (known.empty() ? "" : ", ") + std::string(one->name);
  throw Error(
      "'" + weights.path() + "' is of no architecture that is known here" +
          (said.empty() ? ": it has no " + key + ", and " +
                              (weights.all().empty() ? std::string("no tensor")
                                                     : "its first tensor is '" + weights.all().begin()->first + "'")
                        : ": its " + key + " is '" + said + "'") +
          "; known are " + known,
      weights.path());
}

const Weight& Source::get(const std::string& name) {
  const Weight& weight = weights_.get(name);
  if (!weight.type)
    throw Error("the tensor '" + name + "' has the type " + weight.dtype +
                    "; F32, F16, BF16 and the blocks of GGUF are computed with",
                name);
  used_.insert(name);
  return weight;
}

namespace {
[[noreturn]] void wrong_shape(const Weight& weight, const std::string& wanted) {
  throw Error(
      "the tensor '" + weight.name + "' has the shape " + weight.shape_text() + " where " + wanted + " is due",
      weight.name);
}
std::string extent(Size n) { return n < 0 ? "any" : std::to_string(n); }
// Axes of one left out, but for those of a matrix.
std::vector<std::int64_t> plain(const Weight& weight) {
  std::vector<std::int64_t> shape = weight.shape;
  while (shape.size() > 2) {
    const auto one = std::find(shape.begin(), shape.end(), 1);
    if (one == shape.end()) break;
    shape.erase(one);
  }
  return shape;
}
}  // namespace

Matrix Source::matrix(const std::string& name, Size out, Size in) {
  const Weight& weight = get(name);
  const std::vector<std::int64_t> shape = plain(weight);
  if (shape.size() != 2 || (out >= 0 && shape[0] != out) || (in >= 0 && shape[1] != in) || shape[0] < 1 ||
      shape[1] < 1)
    wrong_shape(weight, "[" + extent(out) + ", " + extent(in) + "]");
  Matrix result;
  result.type = *weight.type, result.out = shape[0], result.in = shape[1], result.data = weight.data;
  return result;
}

Matrix Source::transposed(const std::string& name, Size in, Size out) {
  const Weight& weight = get(name);
  const std::vector<std::int64_t> shape = plain(weight);
  if (shape.size() != 2 || (in >= 0 && shape[0] != in) || (out >= 0 && shape[1] != out))
    wrong_shape(weight, "[" + extent(in) + ", " + extent(out) + "]");
  const Size rows = shape[0], columns = shape[1];
  std::vector<float> from(static_cast<std::size_t>(rows * columns)), to(from.size());
  widen(*weight.type, rows * columns, weight.data, from.data());
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0; j < columns; ++j)
      to[static_cast<std::size_t>(j * rows + i)] = from[static_cast<std::size_t>(i * columns + j)];
  return Matrix::of(columns, rows, std::move(to));
}

std::vector<double> Source::numbers(const std::string& name, Size count) {
  const Weight& weight = get(name);
  const std::int64_t there = weight.numbers();
  if ((count >= 0 && there != count) || there < 1) wrong_shape(weight, extent(count) + " numbers");
  std::vector<float> floats(static_cast<std::size_t>(there));
  widen(*weight.type, there, weight.data, floats.data());
  std::vector<double> result(floats.begin(), floats.end());
  for (const double x : result)
    if (!std::isfinite(x)) throw Error("the tensor '" + name + "' has a number that is not finite", name);
  return result;
}
Numbers Source::vector(const std::string& name, Size count, const std::function<double(double)>& change) {
  std::vector<double> list = numbers(name, count);
  for (double& x : list) x = change(x);
  return numbers_of(std::move(list));
}

void Source::all_used() const {
  for (const auto& [name, weight] : weights_.all()) {
    const std::string_view whole = name;
    const bool ignored = std::any_of(ignored_.begin(), ignored_.end(),
                                     [&](const std::string& ending) { return whole.ends_with(ending); });
    if (!ignored && used_.count(name) == 0)
      throw Error("'" + weights_.path() + "' has the tensor '" + name + "' " + weight.shape_text() +
                      ", which this architecture has no use for: it is another variant, which is not supported",
                  name);
  }
}

int Source::count(const std::string& before) const {
  int most = 0;
  for (auto i = weights_.all().lower_bound(before); i != weights_.all().end() && i->first.rfind(before, 0) == 0;
       ++i) {
    const std::string rest = i->first.substr(before.size());
    const std::size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string::npos || digits > 6 || rest[digits] != '.') continue;
    most = std::max(most, std::stoi(rest.substr(0, digits)) + 1);
  }
  if (most < 1 || most > 100000)
    throw Error("'" + weights_.path() + "' has no tensors that begin with '" + before + "0.'", before);
  return most;
}

Value rms_norm(Graph& g, Source& s, Value x, const std::string& weight, double eps, Size groups, bool plus_one) {
  const auto change = [&](double w) { return plus_one ? 1 + w : w; };
  const Size there = static_cast<Size>(s.numbers(weight).size());
  if (there != x.width && there * groups != x.width) (void)s.numbers(weight, x.width / groups);  // says which shape
  return g.apply(Op::rms_norm_weighted, {x, s.vector(weight, there, change)}, eps, groups);
}
Value layer_norm(Graph& g, Source& s, Value x, const std::string& name, double eps, Size groups) {
  return g.apply(Op::layer_norm, {x, s.vector(name + ".weight", x.width), s.vector(name + ".bias", x.width)}, eps,
                 groups);
}
Value silu(Graph& g, Value x) { return g.apply(Op::silu, {x}); }
Value sigmoid(Graph& g, Value x) { return g.apply(Op::sigmoid, {x}); }

Value swiglu(Graph& g, Source& s, Value x, const std::string& gate, const std::string& up, const std::string& down) {
  Value a, b;
  if (s.has(up)) {
    a = g.linear(x, s.matrix(gate, -1, x.width)), b = g.linear(x, s.matrix(up, -1, x.width));
  } else {
    const Value both = g.linear(x, s.matrix(gate, -1, x.width));
    a = Graph::part(both, 0, both.width / 2), b = Graph::part(both, both.width / 2, both.width / 2);
  }
  return g.linear(g.apply(Op::silu_gate, {b, a}), s.matrix(down, -1, b.width));
}
Value unit_heads(Graph& g, Value x, Size heads) { return g.apply(Op::unit_norm, {x}, 1e-6, heads); }
Value repeat_heads(Graph& g, Value x, Size heads, Size groups) {
  if (groups == 1) return x;
  std::vector<Size> which;
  const Size width = x.width / heads;
  for (Size h = 0; h < heads * groups; ++h)
    for (Size j = 0; j < width; ++j) which.push_back(h / groups * width + j);
  return g.columns(x, std::move(which));
}
Value convolve(Graph& g, Source& s, Value x, const std::string& name, bool silu) {
  const std::vector<double> taps = s.numbers(name + ".weight");
  if (taps.size() % static_cast<std::size_t>(x.width) != 0) (void)s.numbers(name + ".weight", x.width * 4);
  return g.convolve(x, taps, s.has(name + ".bias") ? s.vector(name + ".bias", x.width) : Numbers(), silu);
}
Value linear(Graph& g, Source& s, Value x, const std::string& name, Size out) {
  return g.linear(x, s.matrix(name + ".weight", out, x.width),
                  s.has(name + ".bias") ? s.vector(name + ".bias", out) : Numbers());
}
std::string at(const std::string& before, int i, const std::string& after) {
  return before + std::to_string(i) + "." + after;
}
bool is_gguf(const Source& s, const char* architecture) {
  return s.gguf() && s.settings().text("general.architecture", "") == architecture;
}
double minus_exp(double x) { return -std::exp(x); }

}  // namespace ttr::model
