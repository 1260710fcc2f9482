// `ttr logits` and `ttr perplexity`: what a model says about tokens.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "aside.h"
#include "json.h"
#include "language_verbs.h"
#include "progress.h"
#include "text_table.h"
#include "ttr/language.h"
#include "ttr/safetensors.h"

namespace ttr::cli {
namespace {

double log_sum(std::span<const double> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

Json list_of(std::span<const double> numbers) {
  Json list = Json::array();
  for (const double x : numbers) list.push(x);
  return list;
}

std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c == '\n') result += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) result += fmt::format("\\x{:02x}", c);
    else result += c;
  return result;
}

}  // namespace

int run_logits(const LogitsOptions& o) {
  if (o.tokens.empty() == o.text.empty())
    throw Error("give the tokens by --tokens 34,105,110 or a text by --text, not both", "--tokens");
  if (o.top < 1) throw Error(fmt::format("--top is {}; it is at least 1", o.top), "--top");
  const auto model = open_language_model(o.model);
  const std::vector<std::int32_t> tokens =
      o.tokens.empty() ? model->encode(o.text) : token_list(o.tokens, model->vocabulary(), "--tokens");
  if (tokens.empty()) throw Error("there is no token; give at least one", "--tokens");
  Json numbers = Json::array();
  for (const std::int32_t token : tokens) numbers.push(token);
  const auto whose = [&](std::size_t i) { return fmt::format("'{}' after token {}", o.model.model, i); };
  if (o.all) {
    Json rows = Json::array();
    model->each(tokens, [&](std::size_t i, std::span<const double> logits) {
      check_logits(logits, whose(i));
      if (o.json) rows.push(list_of(logits));
      else {
        const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
        fmt::print("{} {} -> {} {:.6g}\n", i, tokens[i], best, logits[static_cast<std::size_t>(best)]);
      }
    });
    if (o.json) fmt::print("{}\n", Json::object().set("tokens", numbers).set("logits", rows).dump());
    return 0;
  }
  const std::span<const double> logits = model->advance(tokens);
  check_logits(logits, whose(tokens.size() - 1));
  if (o.json) {
    fmt::print("{}\n", Json::object().set("tokens", numbers).set("logits", list_of(logits)).dump());
    return 0;
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto few = static_cast<std::size_t>(std::clamp<int>(o.top, 1, static_cast<int>(order.size())));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(few), order.end(),
      [&](auto a, auto b) { return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)]; });
  const double all = log_sum(logits);
  TextTable table({"token", "text", "logit", "probability"});
  for (std::size_t i = 0; i < few; ++i) {
    const double x = logits[static_cast<std::size_t>(order[i])];
    table.row({std::to_string(order[i]), shown(model->decode(order[i])), fmt::format("{:.6g}", x),
               fmt::format("{:.4f}", std::exp(x - all))});
  }
  fmt::print("{}\n{} tokens; what comes next:\n\n{}", model->about(), tokens.size(), table.text());
  return 0;
}

namespace {

int perplexity(const PerplexityOptions& o) {
  if (o.window < 0 || o.window == 1)
    throw Error(fmt::format("--window is {}; it is 0 or at least 2", o.window), "--window");
  const int stride = o.stride == 0 ? std::max(1, o.window / 2) : o.stride;
  if (o.stride != 0 && o.window == 0) throw Error("--stride needs --window", "--stride");
  if (o.window > 0 && (stride < 1 || stride >= o.window))
    throw Error(fmt::format("--stride is {}; it is at least 1 and below the window of {}", stride, o.window),
                "--stride");
  const std::vector<std::byte> bytes = read_whole_file(o.file);
  if (bytes.empty()) throw Error(fmt::format("'{}' is empty", o.file), o.file);
  ModelOptions how = o.model;
  const auto model = open_language_model(how);
  if (model->tokenizer().empty())
    throw Error(model->tokenizer_problem().empty()
                    ? fmt::format("'{}' comes without a tokenizer; name one by --tokenizer", o.model.model)
                    : model->tokenizer_problem(),
                "--tokenizer");
  const std::vector<std::int32_t> tokens = model->encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (tokens.size() < 2)
    throw Error(fmt::format("'{}' has {} token; at least two are needed", o.file, tokens.size()), o.file);
  Progress progress("tokens", !o.json);
  double nats = 0;
  std::int64_t counted = 0, scored_bytes = 0;
  // Scores tokens from `first` on of those behind `begin`.
  const auto score = [&](std::size_t begin, std::size_t end, std::size_t first) {
    model->each(std::span(tokens).subspan(begin, end - 1 - begin),
                [&](std::size_t i, std::span<const double> logits) {
                  const std::size_t next = begin + i + 1;
                  if (next < first) return;
                  check_logits(logits, fmt::format("'{}' after token {}", o.model.model, next - 1));
                  const std::int32_t token = tokens[next];
                  nats += log_sum(logits) - logits[static_cast<std::size_t>(token)];
                  ++counted, scored_bytes += static_cast<std::int64_t>(model->decode(token).size());
                });
  };
  const std::size_t block = 1024;
  if (o.window == 0) {
    for (std::size_t at = 0; at + 1 < tokens.size() && !interrupted(); at += block) {
      score(at, std::min(tokens.size(), at + block + 1), at + 1);
      progress.update(at, tokens.size());
    }
  } else {
    std::size_t scored = 1;
    for (std::size_t at = 0; scored < tokens.size() && !interrupted(); at += static_cast<std::size_t>(stride)) {
      const std::size_t end = std::min(tokens.size(), at + static_cast<std::size_t>(o.window));
      model->reset();
      score(at, end, scored);
      scored = end;
      progress.update(scored, tokens.size());
    }
  }
  if (interrupted()) return 128 + interrupted();
  const double per_token = nats / static_cast<double>(counted), bits = nats / std::log(2.0);
  const double per_byte = bits / static_cast<double>(std::max<std::int64_t>(1, scored_bytes));
  if (o.json) {
    fmt::print("{}\n", Json::object()
                           .set("model", o.model.model)
                           .set("file", o.file)
                           .set("bytes", bytes.size())
                           .set("tokens", tokens.size())
                           .set("scored_tokens", counted)
                           .set("perplexity", std::exp(per_token))
                           .set("bits_per_token", per_token / std::log(2.0))
                           .set("bits_per_byte", per_byte)
                           .set("window", o.window)
                           .set("stride", o.window ? stride : 0)
                           .dump());
    return 0;
  }
  fmt::print(
      "{}\n{}: {} bytes, {} tokens{}\n\nperplexity      {:.4f} per token\nbits per token  {:.4f}\nbits per byte   "
      "{:.4f}\n",
      model->about(), o.file, bytes.size(), tokens.size(),
      o.window ? fmt::format(", windows of {} by {}", o.window, stride) : ", the state carried through",
      std::exp(per_token), per_token / std::log(2.0), per_byte);
  return 0;
}

}  // namespace

int run_perplexity(const PerplexityOptions& options) {
  const InterruptGuard guard;
  const std::optional<int> code = made_aside([options] { return perplexity(options); });
  return code ? *code : 128 + interrupted();
}

int run_quantize(const QuantizeOptions& o) {
  const InterruptGuard guard;
  model::Quantised made;
  try {
    made = model::quantise(o.from, o.to, o.type, [] { return interrupted() == 0; });
  } catch (const Error&) {
    if (!interrupted()) throw;
    return 128 + interrupted();
  }
  if (o.json)
    fmt::print("{}\n", Json::object()
                           .set("from", o.from)
                           .set("to", o.to)
                           .set("type", o.type)
                           .set("bytes_before", made.before)
                           .set("bytes_after", made.after)
                           .set("tensors", made.changed)
                           .set("no_matrices", made.no_matrices)
                           .set("odd_rows", made.odd_rows)
                           .dump());
  else {
    fmt::print("{}: {} of tensors, {} before\n{} tensors are {}", o.to, short_bytes(static_cast<double>(made.after)),
               short_bytes(static_cast<double>(made.before)), made.changed, o.type);
    if (made.no_matrices > 0) fmt::print("; {} stay f32, being vectors or small", made.no_matrices);
    if (made.odd_rows > 0)
      fmt::print("; {} stay f32, since their rows are no multiple of 32 numbers, the block of {}", made.odd_rows,
                 o.type);
    fmt::print("\n");
  }
  return 0;
}

}  // namespace ttr::cli
