// `ttr check --golden DIR`: every <op>/<case>.safetensors below DIR against every form of the layer that claims the
// op, in double and float: outputs, final states and gradients, relative to the tensor's largest magnitude.
//
// Tensors are named in.X, out.X, grad_out.X, grad_in.X. A layer's table (LayerInfo::golden) says what they are here:
// inputs and outputs of the same name need no entry; "state.S" is a part of the state, with "^" its last two axes are
// swapped, with "~" the gradient is symmetrised, with "=" only the order of the numbers is the same, with "-" the
// sign is the other one; "u[B HV T]" gives the letters of the axes in the file, where joined letters are one axis;
// "answer" is the regression map itself (S), read with unit queries; "before.k" are the tokens before the first.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "commands.h"
#include "progress.h"
#include "runner.h"
#include "safetensors.h"

namespace ttr::cli {
namespace {

namespace fs = std::filesystem;

struct Claim {
  const LayerInfo* layer;
  const GoldenInfo* golden;
};

const Claim* find_claim(const std::vector<Claim>& claims, const std::string& op) {
  for (const Claim& claim : claims)
    if (claim.golden->op == op) return &claim;
  return nullptr;
}

// What a golden name means here.
struct Meaning {
  enum class Kind { tensor, state, answer, before } kind = Kind::tensor;
  std::string name;
  bool swapped = false, symmetric = false, reshaped = false, negated = false, spread = false;
  std::vector<std::string> axes;  // letters of each axis in the file; empty: those of the layer
};

// A name may stand twice in the table, with axes for tensors of different rank (with groups and without).
Meaning meaning_of(const GoldenInfo& golden, const std::string& name, std::size_t rank) {
  Meaning meaning;
  meaning.name = name;
  for (const auto& [theirs, ours] : golden.tensors) {
    if (theirs != name) continue;
    std::string text = ours;
    std::vector<std::string> axes;
    if (const std::size_t open = text.find('['); open != std::string::npos) {
      std::string letters = text.substr(open + 1, text.find(']') - open - 1) + " ";
      text.erase(open, text.find(']') + 1 - open);
      for (std::size_t blank; (blank = letters.find(' ')) != std::string::npos; letters.erase(0, blank + 1))
        axes.push_back(letters.substr(0, blank));
    }
    if (!meaning.axes.empty() && axes.size() != rank) continue;
    meaning.axes = axes;
    while (!text.empty() && text.find_last_of("^~=-%") == text.size() - 1) {
      const char mark = text.back();
      (mark == '^'   ? meaning.swapped
       : mark == '~' ? meaning.symmetric
       : mark == '=' ? meaning.reshaped
       : mark == '%' ? meaning.spread
                     : meaning.negated) = true;
      text.pop_back();
    }
    if (text == "answer") meaning.kind = Meaning::Kind::answer;
    if (text.starts_with("state.")) meaning.kind = Meaning::Kind::state, text.erase(0, 6);
    if (text.starts_with("before.")) meaning.kind = Meaning::Kind::before, text.erase(0, 7);
    meaning.name = text;
  }
  return meaning;
}

using Extents = std::map<char, std::int64_t>;

// The numbers in the order of the axes `wanted`, from axes that may stand in another order or be joined (HV: heads and value
// channels as one axis). Letters the file does not have have extent one.
Numbers in_order(const StoredTensor& tensor, const std::vector<std::string>& axes, const Axes& wanted,
                 const Extents& extents) {
  std::map<char, std::int64_t> stride, size;
  std::int64_t step = 1;
  for (std::size_t a = axes.size(); a-- > 0;)
    for (std::size_t i = axes[a].size(); i-- > 0;) {
      const char letter = axes[a][i];
      stride[letter] = step, size[letter] = extents.at(letter);
      step *= size[letter];
    }
  if (step != static_cast<std::int64_t>(tensor.numbers.size()))
    throw Error(
        fmt::format("a tensor of {} numbers does not have the axes {}", tensor.numbers.size(), wanted.to_string()));
  Numbers result;
  result.reserve(tensor.numbers.size());
  std::vector<std::int64_t> at(wanted.size(), 0);
  for (std::size_t n = 0; n < tensor.numbers.size(); ++n) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (stride.contains(wanted[i])) offset += at[i] * stride[wanted[i]];
    result.push_back(tensor.numbers[static_cast<std::size_t>(offset)]);
    for (std::size_t i = wanted.size(); i-- > 0;) {
      if (++at[i] < (size.contains(wanted[i]) ? size[wanted[i]] : 1)) break;
      at[i] = 0;
    }
  }
  return result;
}

StoredTensor swapped_last_axes(const StoredTensor& tensor) {
  const std::size_t rank = tensor.shape.size();
  if (rank < 2) return tensor;
  StoredTensor result = tensor;
  const std::size_t rows = static_cast<std::size_t>(tensor.shape[rank - 2]),
                    cols = static_cast<std::size_t>(tensor.shape[rank - 1]);
  std::swap(result.shape[rank - 2], result.shape[rank - 1]);
  for (std::size_t base = 0; base < tensor.numbers.size(); base += rows * cols)
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < cols; ++j)
        result.numbers[base + j * rows + i] = tensor.numbers[base + i * cols + j];
  return result;
}

Numbers symmetrised(Numbers numbers, std::size_t side) {
  for (std::size_t base = 0; base < numbers.size(); base += side * side)
    for (std::size_t i = 0; i < side; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        double& a = numbers[base + i * side + j];
        double& b = numbers[base + j * side + i];
        a = b = (a + b) / 2;
      }
  return numbers;
}

// One file, read into the names of the layer.
struct Golden {
  std::string settings;
  Shape shape;
  std::int64_t time = 0, pairs = -1;  // pairs: of a layer that is not causal
  NamedNumbers inputs, initial, outputs, final, d_outputs, d_final, d_inputs, d_initial;
  NamedNumbers answer;
  std::int64_t earlier = 0;                    // tokens before the first, given by their inputs (a cache of pairs)
  NamedNumbers before, d_before;               // those inputs and their gradients
  std::vector<std::string> symmetric;          // states whose gradient is compared symmetrised
  std::map<std::string, std::int64_t> spread;  // inputs of which the file has fewer rows, and how many
};

std::string settings_of(const GoldenInfo& golden, const TensorFile& file) {
  std::string settings;
  for (const auto& [name, value] : golden.settings) {
    std::string chosen = value;
    if (value.starts_with("@")) {
      const auto found = file.metadata.find(value.substr(1));
      if (found == file.metadata.end() || found->second == "None") continue;
      chosen = found->second;
    } else if (value.starts_with("?")) {
      const std::size_t colon = std::min(value.find(':'), value.size());
      const bool there = file.tensors.contains("in." + value.substr(1, colon - 1));
      if (!there && colon == value.size()) continue;
      chosen = there ? "input" : value.substr(colon + 1);
    } else if (value.starts_with("!")) {
      if (file.tensors.contains("in." + value.substr(1))) continue;
      chosen = "none";
    } else if (value.starts_with("#")) {
      const std::size_t dot = value.find('.');
      const auto found = file.tensors.find("in." + value.substr(1, dot - 1));
      if (found == file.tensors.end()) continue;
      chosen = std::to_string(found->second.shape.at(std::stoul(value.substr(dot + 1))));
    }
    settings += (settings.empty() ? "" : ",") + name + "=" + chosen;
  }
  return settings;
}

std::string layer_text(const LayerInfo& layer, const std::string& settings) {
  return settings.empty() ? layer.name : layer.name + ":" + settings;
}

// The axes of a tensor of the layer; none if it has no tensor of that name.
Axes axes_of(const Plan& plan, const Meaning& meaning) {
  Axes axes;
  if (meaning.kind == Meaning::Kind::state) {
    for (const StateInfo& info : plan.states())
      if (info.name == meaning.name) axes = info.shape;
  } else {
    for (const auto infos : {plan.inputs(), plan.outputs()})
      for (const InputInfo& info : infos)
        if (info.name == meaning.name) axes = info.shape;
  }
  return axes;
}

// Extents by letter, from the shapes of the inputs.
Extents infer_extents(const Plan& plan, const Claim& claim, const TensorFile& file) {
  Extents extents;
  std::vector<std::pair<std::string, std::int64_t>> joined;
  for (const auto& [name, tensor] : file.tensors) {
    if (!name.starts_with("in.")) continue;
    const Meaning meaning = meaning_of(*claim.golden, name.substr(3), tensor.shape.size());
    if (meaning.reshaped || meaning.spread || meaning.kind == Meaning::Kind::before) continue;
    const Axes own = axes_of(plan, meaning);
    if (own.empty()) throw Error("the layer " + plan.name() + " has no input for in." + name.substr(3));
    std::vector<std::string> axes = meaning.axes;
    if (axes.empty())
      for (char letter : own) axes.emplace_back(1, letter);
    const std::vector<std::int64_t> shape = meaning.swapped ? swapped_last_axes(tensor).shape : tensor.shape;
    if (axes.size() != shape.size())
      throw Error(fmt::format("{} has {} axes, but {} has {}", name, shape.size(), meaning.name, axes.size()));
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].size() > 1) joined.emplace_back(axes[i], shape[i]);
      if (axes[i].size() > 1 || axes[i] == "1") continue;
      const auto [found, fresh] = extents.emplace(axes[i][0], shape[i]);
      if (!fresh && found->second != shape[i])
        throw Error(
            fmt::format("axis {} of {} has extent {}, elsewhere it has {}", axes[i], name, shape[i], found->second));
    }
  }
  // Of a joined axis one letter may be unknown; where heads are too, there is one.
  for (const auto& [letters, size] : joined) {
    std::int64_t known = 1;
    for (std::size_t i = 0; i + 1 < letters.size(); ++i)
      known *= extents.emplace(letters[i], extents.contains('G') ? extents['G'] : 1).first->second;
    if (size % known != 0) throw Error(fmt::format("an axis of {} cannot be split into {} parts", size, known));
    extents.emplace(letters.back(), size / known);
  }
  const auto otherwise = [&](char letter, std::int64_t number) { extents.emplace(letter, number); };
  otherwise('H', extents.contains('G') ? extents['G'] : 1);
  otherwise('G', extents['H']);
  for (char letter : {'B', 'K', 'V', '1'}) otherwise(letter, 1);
  otherwise('T', 0);
  return extents;
}

// [B, n, ...] -> [B, T, ...]: each row stands for T / n tokens.
Numbers spread_in_time(const Numbers& rows, std::int64_t batch, std::int64_t n, std::int64_t time) {
  const std::int64_t inner = static_cast<std::int64_t>(rows.size()) / (batch * n), each = time / n;
  Numbers result;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < time; ++t) {
      const auto row = rows.begin() + (b * n + std::min(t / each, n - 1)) * inner;
      result.insert(result.end(), row, row + inner);
    }
  return result;
}
// The gradient of that: the sum over the tokens of a row.
Numbers gathered_in_time(const Numbers& tokens, std::int64_t batch, std::int64_t n, std::int64_t time) {
  const std::int64_t inner = static_cast<std::int64_t>(tokens.size()) / (batch * time), each = time / n;
  Numbers result(static_cast<std::size_t>(batch * n * inner));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < time; ++t)
      for (std::int64_t i = 0; i < inner; ++i)
        result[static_cast<std::size_t>((b * n + std::min(t / each, n - 1)) * inner + i)] +=
            tokens[static_cast<std::size_t>((b * time + t) * inner + i)];
  return result;
}

Golden interpret(const Claim& claim, const TensorFile& file) {
  Golden g;
  g.settings = settings_of(*claim.golden, file);
  const Plan small = plan(layer_text(*claim.layer, g.settings), {.key_dim = 64, .value_dim = 64});  // for its tables
  Extents extents = infer_extents(small, claim, file);
  const auto whole = [&](char letter) { return static_cast<int>(extents[letter]); };
  g.shape = {whole('B'), whole('H'), whole('G'), whole('K'), whole('V')};
  g.time = extents['T'];
  if (!small.options().causal && extents.contains('P')) g.pairs = extents['P'];
  const Plan sized = plan(layer_text(*claim.layer, g.settings), g.shape);  // knows the letters that settings decide
  const auto complete = [&](const Axes& axes) {
    for (char letter : axes) extents.emplace(letter, sized.extents(std::string(1, letter), g.time).front());
    return axes;
  };
  for (const auto& [full, stored] : file.tensors) {
    const std::size_t dot = full.find('.');
    if (dot == std::string::npos) throw Error("tensor " + full + " has no part before a dot");
    const std::string part = full.substr(0, dot);
    const Meaning meaning = meaning_of(*claim.golden, full.substr(dot + 1), stored.shape.size());
    Numbers numbers = meaning.swapped ? swapped_last_axes(stored).numbers
                      : !meaning.axes.empty()
                          ? in_order(stored, meaning.axes, complete(axes_of(small, meaning)), extents)
                          : stored.numbers;
    if (meaning.negated)
      for (double& x : numbers) x = -x;
    if (meaning.spread) {
      g.spread[meaning.name] = stored.shape.at(1);
      if (part == "in") numbers = spread_in_time(numbers, g.shape.batch, stored.shape.at(1), g.time);
    }
    const bool state = meaning.kind == Meaning::Kind::state;
    if (meaning.kind == Meaning::Kind::before) {
      g.earlier = stored.shape.at(1);
      (part == "in" ? g.before : g.d_before)[meaning.name] = numbers;
    } else if (meaning.kind == Meaning::Kind::answer) {
      if (part == "out") g.answer[full] = numbers;
    } else if (part == "in") {
      (state ? g.initial : g.inputs)[meaning.name] = numbers;
    } else if (part == "out") {
      (state ? g.final : g.outputs)[meaning.name] = numbers;
    } else if (part == "grad_out") {
      (state ? g.d_final : g.d_outputs)[meaning.name] = numbers;
    } else if (part == "grad_in") {
      (state ? g.d_initial : g.d_inputs)[meaning.name] = numbers;
    } else {
      throw Error("tensor " + full + " is none of in, out, grad_out, grad_in");
    }
    if (meaning.symmetric) g.symmetric.push_back(meaning.name);
  }
  return g;
}

struct Worst {
  double error = 0;
  std::string tensor;
  void take(const std::string& name, double e) {
    if (!(e <= error)) error = e, tensor = name;
  }
};

void compare(Worst& worst, const std::string& prefix, const NamedNumbers& actual, const NamedNumbers& expected) {
  for (const auto& [name, numbers] : expected) {
    const auto found = actual.find(name);
    worst.take(prefix + name, found == actual.end() ? INFINITY : relative_error(found->second, numbers));
  }
}

// S, row by row: the last token's answer to the query e_i.
Numbers answer_map(const Runner& runner, const Golden& g, Form form) {
  const Shape& s = runner.plan().shape();
  const std::size_t B = static_cast<std::size_t>(s.batch), H = static_cast<std::size_t>(s.heads),
                    K = static_cast<std::size_t>(s.key_dim), V = static_cast<std::size_t>(s.value_dim),
                    T = static_cast<std::size_t>(g.time);
  Numbers map(B * H * K * V);
  for (std::size_t i = 0; i < K; ++i) {
    NamedNumbers inputs = g.inputs;
    Numbers& q = inputs.at("q");
    for (std::size_t b = 0; b < B; ++b)
      for (std::size_t h = 0; h < H; ++h)
        for (std::size_t j = 0; j < K; ++j)
          q[((b * T + T - 1) * H + h) * K + j] = i == j ? 1 / runner.plan().scale() : 0;
    const Numbers o = runner.forward(inputs, g.initial, form).outputs.at(runner.plan().outputs().front().name);
    for (std::size_t b = 0; b < B; ++b)
      for (std::size_t h = 0; h < H; ++h)
        for (std::size_t v = 0; v < V; ++v) map[((b * H + h) * K + i) * V + v] = o[((b * T + T - 1) * H + h) * V + v];
  }
  return map;
}

// Arrays [B, T, ...] with other tokens (zeros where there are none) before the first.
NamedNumbers with_earlier(const Plan& plan, const Golden& g, const NamedNumbers& numbers,
                          std::span<const InputInfo> infos, const NamedNumbers& before) {
  NamedNumbers all = numbers;
  for (const InputInfo& info : infos) {
    if (!all.contains(info.name) || !info.shape.starts_with("B T")) continue;
    const std::size_t batch = static_cast<std::size_t>(g.shape.batch), one = count(plan, info.shape, 1) / batch,
                      now = one * static_cast<std::size_t>(g.time), old = one * static_cast<std::size_t>(g.earlier);
    const Numbers& tokens = numbers.at(info.name);
    const auto found = before.find(info.name);
    Numbers joined;
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t i = 0; i < old; ++i) joined.push_back(found == before.end() ? 0 : found->second[b * old + i]);
      joined.insert(joined.end(), tokens.begin() + static_cast<std::ptrdiff_t>(b * now),
                    tokens.begin() + static_cast<std::ptrdiff_t>((b + 1) * now));
    }
    all[info.name] = joined;
  }
  return all;
}

// Tokens [begin, end) of every array that has a time axis.
NamedNumbers cut(const Plan& plan, const NamedNumbers& numbers, std::span<const InputInfo> infos, std::int64_t time,
                 std::int64_t begin, std::int64_t end) {
  NamedNumbers result;
  for (const InputInfo& info : infos)
    if (const auto found = numbers.find(info.name); found != numbers.end())
      result[info.name] = tokens_of(plan, found->second, info.shape, time, begin, end);
  return result;
}

void check_file(const Claim& claim, const TensorFile& file, const std::string& op, const std::string& name,
                CheckPrinter& printer) {
  const Golden g = interpret(claim, file);
  for (Type type : {Type::f64, Type::f32}) {
    Options options;
    options.type = type;
    const std::int64_t time = g.earlier + g.time;
    const Runner runner(plan(layer_text(*claim.layer, g.settings), g.shape, options), time, 0, g.pairs);
    const std::span<const InputInfo> input_infos = runner.plan().inputs(), output_infos = runner.plan().outputs();
    const NamedNumbers inputs = with_earlier(runner.plan(), g, g.inputs, input_infos, g.before),
                       d_outputs = with_earlier(runner.plan(), g, g.d_outputs, output_infos, {});
    const double tolerance = type == Type::f64 ? claim.layer->tolerance_f64 : claim.layer->tolerance_f32;
    for (Form form : runner.plan().forms()) {
      Worst worst;
      std::string trouble;
      try {
        const Forward f =
            form == Form::step ? runner.step_by_step(inputs, g.initial) : runner.forward(inputs, g.initial, form);
        compare(worst, "out.", cut(runner.plan(), f.outputs, output_infos, time, g.earlier, time), g.outputs);
        compare(worst, "out.", f.state, g.final);
        if (!g.answer.empty() && form != Form::step)
          worst.take("answer", relative_error(answer_map(runner, g, form), g.answer.begin()->second));
        if (form != Form::step && !(g.d_outputs.empty() && g.d_final.empty())) {
          Backward b = runner.backward(inputs, g.initial, d_outputs, g.d_final, form);
          for (const std::string& state : g.symmetric)
            if (b.state.contains(state))
              b.state[state] = symmetrised(b.state[state], static_cast<std::size_t>(g.shape.key_dim));
          NamedNumbers d_now = cut(runner.plan(), b.inputs, input_infos, time, g.earlier, time);
          for (const auto& [spread, rows] : g.spread)
            d_now[spread] = gathered_in_time(d_now.at(spread), g.shape.batch, rows, g.time);
          compare(worst, "grad_in.", d_now, g.d_inputs);
          compare(worst, "grad_in.before.", cut(runner.plan(), b.inputs, input_infos, time, 0, g.earlier),
                  g.d_before);
          compare(worst, "grad_in.", b.state, g.d_initial);
        }
      } catch (const Error& error) {
        trouble = error.what();
        worst.error = INFINITY;
      }
      const bool passed = trouble.empty() && worst.error <= tolerance;
      printer.add({claim.layer->name, op + "/" + name, "golden", std::string(to_string(form)),
                   type == Type::f64 ? "f64" : "f32", worst.error, tolerance, passed,
                   !trouble.empty() ? trouble
                   : passed         ? ""
                                    : worst.tensor});
    }
  }
}

}  // namespace

void check_golden(const std::string& folder, const std::vector<std::string>& ops, CheckPrinter& printer) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed))
    throw Error("the folder " + folder + " of golden vectors does not exist or cannot be read", "--golden " + folder);
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  if (failed) throw Error("cannot read the folder " + folder + ": " + failed.message(), "--golden " + folder);
  if (files.empty()) throw Error("there is no .safetensors file below " + folder, "--golden " + folder);
  std::sort(files.begin(), files.end());
  std::vector<Claim> claims;
  for (const LayerInfo& layer : layers())
    for (const GoldenInfo& golden : layer.golden) claims.push_back({&layer, &golden});
  const auto wanted = [&](const std::string& op) {
    return ops.empty() || std::find(ops.begin(), ops.end(), op) != ops.end();
  };
  for (const std::string& op : ops)
    if (std::none_of(files.begin(), files.end(), [&](const fs::path& p) { return p.parent_path().filename() == op; }))
      throw Error("there is no golden op '" + op + "' below " + folder, "check " + op);
  for (const fs::path& path : files) {
    if (interrupted()) return;
    const std::string op = path.parent_path().filename().string(), name = path.stem().string();
    if (!wanted(op)) continue;
    const Claim* claim = find_claim(claims, op);
    try {
      if (!claim) throw Error("no layer claims this operation");
      check_file(*claim, read_safetensors(path.string()), op, name, printer);
    } catch (const Error& error) {
      printer.add(
          {claim ? claim->layer->name : "-", op + "/" + name, "golden", "-", "-", INFINITY, 0, false, error.what()});
    }
  }
}

}  // namespace ttr::cli
