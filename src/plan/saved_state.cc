// Saved states: a safetensors file with these tensors for n sequences
//
//   a part of fixed size   its name         F32 or F64  [n, extent...]
//   a list of pairs        its name         F32 or F64  [pairs of all sequences, extent...], one sequence after another
//                                           layout 2: also BF16, F16 and I8 (Options::state_type); the scales of I8 are lists
//   counts                 kept / counted   I64 [n]     pairs of each sequence (lists); tokens as the kernel counts them
//                          tokens           I64 [n]     tokens seen
//
// and metadata: format, layout, library, layer, recipe, settings, type, solver, scale, heads, key_heads, key_dim,
// value_dim, sequences, crc32 (files/seal.h); in layout 2, which is written for states in fewer bytes alone, state_type.
// Tensors are read by name; a later layout may add some.
//
// A plan takes a state back if layer and settings are the same (of a recipe: if it means the same), and type, solver
// (kernels and the oracle keep different things), scale and shape; a part that has another shape is refused in any case.
#include "ttr/saved_state.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "files/seal.h"
#include "plan/pipeline.h"
#include "ttr/safetensors.h"
#include "ttr/version.h"

namespace ttr {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr const char* format_name = "ttr state";

std::string shortest(double x) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, x);
  return error == std::errc() ? std::string(text, end) : "?";
}

// What a plan and a file must have in common; of named layers the recipe is for people, words may be spelt otherwise one
// day.
Metadata identity(const Plan& plan) {
  const Plan::Body& body = *plan.body();
  std::string settings;
  for (const auto& [name, value] : body.options.settings)
    settings += (settings.empty() ? "" : ",") + name + "=" + value;
  return {{"layer", plan.name()},
          {"settings", settings},
          {"type", std::string(to_string(body.options.type))},
          {"solver", body.on_oracle() ? "oracle" : "kernel"},
          {"scale", shortest(plan.scale())},
          {"heads", std::to_string(body.shape.heads)},
          {"key_heads", std::to_string(body.shape.key_heads)},
          {"key_dim", std::to_string(body.shape.key_dim)},
          {"value_dim", std::to_string(body.shape.value_dim)}};
}

const char* dtype_of(Type type) {
  switch (type) {
    case Type::f32:
      return "F32";
    case Type::f64:
      return "F64";
    case Type::bf16:
      return "BF16";
    case Type::f16:
      return "F16";
    case Type::i8:
      return "I8";
    default:
      return "I64";
  }
}

// What a state holds: the plan's type, or that of Options::state_type. Files of layout 1 do not say: the plan's.
std::string state_type_of(const Plan::Body& body) {
  return std::string(to_string(body.options.state_type.value_or(body.options.type)));
}

// What a plan without a state, or a buffer that is none of its, gets.
void check_plan(const Plan& plan, ConstState state, const std::string& what) {
  if (plan.states().empty()) throw Error(what + ": " + plan.name() + " has no state", what);
  if (const Status s = check_buffer(*plan.body(), state); s != Status::ok)
    throw Error(what + ": " + std::string(to_string(s)), what);
}

// A file, checked as far as that goes without a plan.
struct Checked {
  std::string name;
  TensorFile file;
  std::int64_t sequences = 0;
  std::vector<std::int64_t> tokens, counts;
  bool has_counts = false;

  std::string state_type() const { return about("layout") == "1" ? about("type") : about("state_type"); }
  [[noreturn]] void refuse(const std::string& why) const { throw Error(name + ": " + why, name); }
  std::string about(const std::string& key) const {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? "" : found->second;
  }
  std::int64_t number(const std::string& key) const {
    const std::string text = about(key);
    std::int64_t n = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size() || n < 0)
      refuse("its '" + key + "' is '" + text + "', which is no number");
    return n;
  }
  // The counts of that name; nothing if there are none.
  std::vector<std::int64_t> counts_named(const std::string& key, bool& there) const {
    const StoredTensor* const tensor = file.find(key);
    there = tensor != nullptr;
    if (!there) return {};
    if (tensor->dtype != "I64" || tensor->shape != std::vector<std::int64_t>{sequences})
      refuse("'" + key + "' is not one I64 for each of its " + std::to_string(sequences) + " sequences");
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(sequences));
    std::memcpy(numbers.data(), tensor->bytes.data(), tensor->bytes.size());
    for (const std::int64_t n : numbers)
      if (n < 0) refuse("'" + key + "' counts " + std::to_string(n));
    return numbers;
  }
};

Checked check(std::span<const std::byte> bytes, const std::string& name) {
  Checked c;
  c.name = name;
  c.file = from_bytes(bytes, name);
  if (c.about("format") != format_name)
    c.refuse("it is a safetensors file, but no saved state of ttr: its format is '" + c.about("format") + "'");
  if (c.number("layout") > saved_state_layout)
    c.refuse("its layout is " + c.about("layout") + ", and this version (" TTR_VERSION ") reads up to " +
             std::to_string(saved_state_layout) + "; load it with library " + c.about("library") + " or newer");
  if (!is_sealed(bytes)) c.refuse("its bytes do not have its checksum " + c.about("crc32") + "; it is damaged");
  c.sequences = c.number("sequences");
  bool seen = false, kept = false;
  c.tokens = c.counts_named(seen_part, seen);
  if (!seen || c.sequences < 1) c.refuse("it does not say how many tokens its sequences have seen");
  c.counts = c.counts_named(kept_part, kept);
  if (!kept) c.counts = c.counts_named(counted_part, kept);
  c.has_counts = kept;
  return c;
}

// Throws unless the plan is one of the state's.
void check_identity(const Checked& c, const Plan& plan) {
  const Metadata own = identity(plan);
  const bool named = plan.name() != to_string(plan.recipe());
  for (const auto& [key, value] : own) {
    if (c.about(key) == value) continue;
    if (!named && key == "layer") {  // a recipe: what counts is what it means
      try {
        if (parse_recipe(c.about("recipe")) == plan.recipe() && c.about("layer") == c.about("recipe")) continue;
      } catch (const Error&) {
      }
    }
    c.refuse("it was saved with " + key + " '" + c.about(key) + "', and the plan has '" + value + "'");
  }
  if (const std::string type = state_type_of(*plan.body()); c.state_type() != type)
    c.refuse("it was saved with state_type '" + c.state_type() + "', and the plan has '" + type + "'");
}

// The tensor of a part, which has `rows` sequences, or pairs of a list.
const StoredTensor& tensor_of(const Checked& c, const StatePart& part, std::int64_t rows) {
  const StoredTensor* const tensor = c.file.find(part.info.name);
  if (!tensor) c.refuse("the state " + part.info.name + " is missing");
  std::vector<std::int64_t> shape = {rows};
  shape.insert(shape.end(), part.extent.begin(), part.extent.end());
  if (tensor->dtype != dtype_of(part.type) || tensor->shape != shape)
    c.refuse("the state " + part.info.name + " has another type or shape than in the plan");
  return *tensor;
}

void load(std::span<const std::byte> bytes, const std::string& name, const Plan& plan, State state, int to,
          int from) {
  const Checked c = check(bytes, name);
  check_plan(plan, state, name);
  check_identity(c, plan);
  const Plan::Body& body = *plan.body();
  if (from != all_sequences && (from < 0 || from >= c.sequences))
    c.refuse("it has " + std::to_string(c.sequences) + " sequences, and none with number " + std::to_string(from));
  const std::int64_t first = from == all_sequences ? 0 : from, count = from == all_sequences ? c.sequences : 1;
  if (to < 0 || to + count > body.shape.batch)
    c.refuse(std::to_string(count) + " sequences from number " + std::to_string(to) + " on do not fit into " +
             std::to_string(body.shape.batch));
  if (c.has_counts != body.has_counts()) c.refuse("it counts what the plan does not, or the other way round");
  std::vector<std::int64_t> pairs_before(static_cast<std::size_t>(c.sequences) + 1, 0);
  for (std::size_t n = 0; n < static_cast<std::size_t>(c.sequences); ++n) {
    const std::int64_t own = body.layout.grows() ? c.counts[n] : 0;
    if (own > std::int64_t{1} << 48) c.refuse("a sequence keeps " + std::to_string(own) + " pairs");
    pairs_before[n + 1] = pairs_before[n] + own;
    const bool wanted = static_cast<std::int64_t>(n) >= first && static_cast<std::int64_t>(n) < first + count;
    if (wanted && own > 0 && own > body.capacity(state))
      c.refuse("sequence " + std::to_string(n) + " keeps " + std::to_string(own) +
               " pairs and the state has room for " + std::to_string(body.capacity(state)) +
               "; move it into a larger buffer with grow()");
  }
  const auto& parts = body.pipeline.states;
  std::vector<const StoredTensor*> tensors;
  tensors.reserve(parts.size());
  for (const StatePart& part : parts)
    tensors.push_back(&tensor_of(c, part, part.history ? pairs_before.back() : c.sequences));

  // From here on nothing can fail.
  for (std::int64_t i = 0; i < count; ++i) {
    const auto n = static_cast<std::size_t>(first + i), slot = static_cast<std::size_t>(to + i);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const StatePlace place = body.state_place(state, static_cast<int>(p));
      const std::size_t one = numbers(parts[p]) * size_of(parts[p].type);
      const auto bytes_of = [&](std::int64_t rows) { return one * static_cast<std::size_t>(rows); };
      std::byte* const target =
          static_cast<std::byte*>(state.data) + place.offset + slot * bytes_of(parts[p].history ? place.capacity : 1);
      const std::byte* const source =
          tensors[p]->bytes.data() + (parts[p].history ? bytes_of(pairs_before[n]) : n * one);
      const std::size_t size = parts[p].history ? bytes_of(pairs_before[n + 1] - pairs_before[n]) : one;
      if (size > 0) std::memcpy(target, source, size);
    }
    if (body.has_counts()) body.counts(state)[slot] = c.counts[n];
    body.seen(state)[slot] = c.tokens[n];
    if (std::int64_t* const undo = body.undo(state)) undo[slot] = 0;
  }
}

}  // namespace

std::vector<std::byte> save_state(const Plan& plan, ConstState state, int sequence) {
  check_plan(plan, state, "a state to save");
  const Plan::Body& body = *plan.body();
  if (sequence != all_sequences && (sequence < 0 || sequence >= body.shape.batch))
    throw Error("there is no sequence " + std::to_string(sequence) + " to save; the plan has " +
                    std::to_string(body.shape.batch),
                "sequence");
  const int first = sequence == all_sequences ? 0 : sequence,
            count = sequence == all_sequences ? body.shape.batch : 1;
  TensorFile file;
  for (std::size_t p = 0; p < body.pipeline.states.size(); ++p) {
    const StatePart& part = body.pipeline.states[p];
    const StatePlace place = body.state_place(state, static_cast<int>(p));
    const std::size_t one = numbers(part) * size_of(part.type);
    StoredTensor tensor{part.info.name, dtype_of(part.type), {0}, {}};
    for (int n = first; n < first + count; ++n) {
      const std::int64_t rows = part.history ? body.counts(state)[n] : 1;
      if (rows < 0 || (part.history && rows > place.capacity))
        throw Error("sequence " + std::to_string(n) + " counts " + std::to_string(rows) +
                        " pairs, which no call has left in it; reset() it first",
                    "sequence");
      const std::byte* const from =
          static_cast<const std::byte*>(state.data) + place.offset +
          static_cast<std::size_t>(n) * one * static_cast<std::size_t>(part.history ? place.capacity : 1);
      tensor.bytes.insert(tensor.bytes.end(), from, from + one * static_cast<std::size_t>(rows));
      tensor.shape[0] += rows;
    }
    tensor.shape.insert(tensor.shape.end(), part.extent.begin(), part.extent.end());
    file.tensors.push_back(std::move(tensor));
  }
  const auto add_counts = [&](const char* name, const std::int64_t* numbers_of) {
    StoredTensor tensor{name, "I64", {count}, {}};
    const std::span<const std::byte> bytes =
        std::as_bytes(std::span(numbers_of + first, static_cast<std::size_t>(count)));
    tensor.bytes.assign(bytes.begin(), bytes.end());
    file.tensors.push_back(std::move(tensor));
  };
  if (body.has_counts()) add_counts(body.pipeline.history ? kept_part : counted_part, body.counts(state));
  add_counts(seen_part, body.seen(state));
  file.metadata = identity(plan);
  file.metadata["format"] = format_name;
  // Programs that know layout 1 alone read all states but those of a type of their own.
  file.metadata["layout"] = std::to_string(body.options.state_type ? saved_state_layout : 1);
  if (body.options.state_type) file.metadata["state_type"] = state_type_of(body);
  file.metadata["library"] = TTR_VERSION;
  file.metadata["recipe"] = to_string(plan.recipe());
  file.metadata["sequences"] = std::to_string(count);
  return sealed(std::move(file));
}

void save_state(const std::string& path, const Plan& plan, ConstState state, int sequence) {
  write_whole_file(path, save_state(plan, state, sequence));
}

void load_state(std::span<const std::byte> bytes, const Plan& plan, State state, int to, int from) {
  load(bytes, "a saved state", plan, state, to, from);
}

void load_state(const std::string& path, const Plan& plan, State state, int to, int from) {
  load(read_whole_file(path), path, plan, state, to, from);
}

SavedState read_saved_state(const std::string& path) {
  const Checked c = check(read_whole_file(path), path);
  return {c.file.metadata, c.tokens};
}

}  // namespace ttr
