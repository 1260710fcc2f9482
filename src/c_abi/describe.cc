// What other languages show to people: layers, plans, derivations and streams as JSON.
//
// The fields are those of ttr/layer.h, ttr/origins.h, ttr/plan.h, ttr/recipe.h and ttr/stream.h under the same names.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c_abi/guard.h"
#include "ttr/c.h"
#include "ttr/layer.h"
#include "ttr/origins.h"
#include "ttr/plan.h"
#include "ttr/recipe.h"
#include "ttr/stream.h"

namespace {

using ttr::c_abi::bad;
using ttr::c_abi::guarded;
using ttr::c_abi::no_plan;

// As much of a writer as these tables need: objects whose fields are strings, numbers, booleans and lists.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (c == '\n') out += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else out += c;
  }
  return out + '"';
}
std::string json(const std::string& text) { return quoted(text); }
std::string json(const char* text) { return quoted(text); }
std::string json(bool yes) { return yes ? "true" : "false"; }
std::string json(int number) { return std::to_string(number); }
std::string json(double number) {
  if (!std::isfinite(number)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}
template <class List, class One>
std::string list_of(const List& list, One&& one) {
  std::string out = "[";
  for (const auto& element : list) out += (out.size() > 1 ? ", " : "") + one(element);
  return out + "]";
}
std::string json(const std::vector<std::string>& list) {
  return list_of(list, [](const std::string& text) { return quoted(text); });
}

class Object {
 public:
  template <class Value>
  Object& set(const char* name, const Value& value) {
    return raw(name, json(value));
  }
  Object& raw(const char* name, const std::string& value) {
    text_ += (text_.size() > 1 ? ", " : "") + quoted(name) + ": " + value;
    return *this;
  }
  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

constexpr const char* range_names[] = {"normal",   "unit",  "sigmoid", "log_gate", "factor", "positive",
                                       "negative", "small", "rate",    "weights",  "fresh"};

template <class Info>
std::string described(const Info& info) {
  Object object;
  object.set("name", info.name).set("shape", info.shape).set("meaning", info.meaning);
  object.set("range", range_names[static_cast<int>(info.range)]).set("differentiable", info.differentiable);
  if constexpr (requires { info.optional; }) object.set("optional", info.optional);
  return object.text();
}
template <class Infos>
std::string table(const Infos& infos) {
  return list_of(infos, [](const auto& info) { return described(info); });
}

std::string pairs(const std::vector<std::pair<std::string, std::string>>& list) {
  return list_of(list, [](const auto& pair) { return "[" + quoted(pair.first) + ", " + quoted(pair.second) + "]"; });
}

std::string described(const ttr::LayerInfo& layer) {
  Object object;
  object.set("name", layer.name).set("title", layer.title).set("recipe", layer.recipe).set("paper", layer.paper);
  object.set("equation", layer.equation).set("scale", layer.scale).set("departure", layer.departure);
  object.set("traps", layer.traps).set("grouped", layer.grouped).set("square", layer.square);
  object.set("literal", layer.literal).set("forms", layer.forms).set("absent_forms", layer.absent_forms);
  object.raw("inputs", table(layer.inputs)).raw("outputs", table(layer.outputs)).raw("states", table(layer.states));
  object.raw("settings", list_of(layer.settings, [](const ttr::SettingInfo& setting) {
               return Object()
                   .set("name", setting.name)
                   .set("meaning", setting.meaning)
                   .set("stream_default", setting.stream_default)
                   .text();
             }));
  object.raw("golden", list_of(layer.golden, [](const ttr::GoldenInfo& golden) {
               return Object()
                   .set("op", golden.op)
                   .raw("tensors", pairs(golden.tensors))
                   .raw("settings", pairs(golden.settings))
                   .text();
             }));
  object.set("tolerance_f64", layer.tolerance_f64).set("tolerance_f32", layer.tolerance_f32);
  object.set("no_stream_because", ttr::why_not_on_a_stream(layer.name));
  return object.text();
}

std::string described(const ttr::Plan& plan) {
  Object object;
  object.set("name", plan.name()).set("recipe", ttr::to_string(plan.recipe())).set("kernel", plan.kernel());
  object.set("scale", plan.scale());
  const ttr::Shape& shape = plan.shape();
  object.set("batch", shape.batch).set("heads", shape.heads).set("key_heads", shape.key_heads);
  object.set("key_dim", shape.key_dim).set("value_dim", shape.value_dim);
  object.raw("inputs", table(plan.inputs()))
      .raw("outputs", table(plan.outputs()))
      .raw("states", table(plan.states()));
  const std::optional<ttr::Forgetting> forgetting = plan.forgetting();
  object.raw("forgetting", !forgetting
                               ? std::string("null")
                               : "[" + json(forgetting->factor) + ", " + std::to_string(forgetting->window) + "]");
  std::vector<std::string> forms, absent;
  for (const ttr::Form form : plan.forms()) forms.emplace_back(ttr::to_string(form));
  for (const ttr::Form form : {ttr::Form::chunk, ttr::Form::parallel, ttr::Form::scan})
    if (const std::string name(ttr::to_string(form)); std::find(forms.begin(), forms.end(), name) == forms.end())
      absent.push_back(name + ": " + std::string(plan.why_absent(form)));
  return object.set("forms", forms).set("absent_forms", absent).text();
}

std::string described(const ttr::Derivation& d, const std::string& departure,
                      const std::vector<std::string>& sources) {
  Object object;
  object.set("recipe", d.recipe).set("objective", d.objective).set("gradient", d.gradient);
  object.set("recurrence", d.recurrence).set("readout", d.readout).set("state_size", d.state_size);
  object.set("departure", departure).set("sources", sources);
  object.set("cost_per_token", d.cost_per_token).set("forms", d.forms).set("simplest", d.simplest);
  object.set("equals", d.equals).set("equals_with", d.equals_with).set("because", d.because);
  return object.set("neighbours", d.neighbours).set("remarks", d.remarks).text();
}

std::string described(const ttr::StreamText& stream) {
  constexpr const char* sources[] = {"query",  "key",    "value",  "number", "identity",
                                     "random", "cosine", "scores", "shares"};
  Object object;
  object.set("text", stream.text).set("recipe", stream.recipe).set("as_layer", stream.as_layer);
  object.raw("inputs", list_of(stream.inputs, [&](const ttr::StreamInput& input) {
               return Object()
                   .set("name", input.name)
                   .set("source", sources[static_cast<int>(input.source)])
                   .set("number", input.number)
                   .set("shift", input.shift)
                   .set("unit", input.unit)
                   .set("words", input.words)
                   .text();
             }));
  return object.set("changes", stream.changes).text();
}

ttr_status copy_text(const std::string& text, char* buffer, size_t* size) {
  const bool fits = buffer && *size > text.size();
  if (fits) std::memcpy(buffer, text.c_str(), text.size() + 1);
  *size = text.size() + 1;
  return fits || !buffer ? ttr_status{TTR_OK} : bad("the buffer is smaller than the text");
}

}  // namespace

extern "C" {

const char* ttr_last_error_where(void) { return ttr::c_abi::last_error().where.c_str(); }

ttr_status ttr_layer_describe(const char* name, char* buffer, size_t* size) {
  if (!name || !size) return bad("the name or the size is NULL");
  return guarded([&] { return copy_text(described(ttr::find_layer(name)), buffer, size); });
}
ttr_status ttr_plan_describe(const ttr_plan* p, char* buffer, size_t* size) {
  if (!p || !size) return bad(no_plan);
  return guarded([&] { return copy_text(described(p->plan), buffer, size); });
}
ttr_status ttr_derive(const char* text, int32_t latex, char* buffer, size_t* size) {
  if (!text || !size) return bad("the recipe or the size is NULL");
  return guarded([&] {
    const std::string_view asked = text;
    const ttr::Notation notation = latex ? ttr::Notation::latex : ttr::Notation::plain;
    const bool is_recipe = asked.find('/') != std::string_view::npos;
    const ttr::LayerInfo* const layer = is_recipe ? nullptr : &ttr::find_layer(asked.substr(0, asked.find(':')));
    if (layer && layer->recipe.empty())
      throw ttr::Error(std::string(asked) +
                           " is an operation on one tensor: it solves no regression, so there is "
                           "nothing to derive",
                       std::string(asked));
    std::optional<ttr::Plan> named;
    if (layer) named = ttr::plan(asked, {.heads = 1, .key_dim = 4, .value_dim = 4});
    const ttr::Recipe recipe = named ? named->recipe() : ttr::parse_recipe(asked);
    return copy_text(described(named ? ttr::derive(*named, notation) : ttr::derive(recipe, notation),
                               layer ? ttr::departure(*layer, notation) : "", ttr::sources(recipe, notation)),
                     buffer, size);
  });
}
ttr_status ttr_stream_describe(const char* text, char* buffer, size_t* size) {
  if (!text || !size) return bad("the layer or the size is NULL");
  return guarded([&] { return copy_text(described(ttr::stream_layer(text)), buffer, size); });
}

}  // extern "C"
