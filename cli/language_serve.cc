// Completions of a published model for `ttr serve` (serve_text.h).
//
// One thread runs the model: texts join the slots (ttr/language.h) in the order of their requests, every round gives each of
// them a token, and those who wait get the slots of those who have ended. What is answered to a request does not depend on
// the others: the same seed gives the same text.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "json.h"
#include "regress_parts.h"
#include "sampling.h"
#include "serve_store.h"
#include "serve_text.h"
#include "stop_text.h"
#include "ttr/language.h"
#include "ttr/memory.h"

namespace ttr::cli {
namespace {

struct Request {
  std::vector<std::int32_t> prompt;
  std::string prompt_text;
  std::int64_t tokens = 16;
  std::uint64_t seed = 0;
  Sampling sampling;
  std::vector<std::string> stop;
  bool stream = false, echo = false;
};

[[noreturn]] void refuse(const std::string& why) { throw Refusal(400, why); }

double number_in(const Json& from, const char* name, double otherwise, double least, double most) {
  const Json value = from.at(name);
  if (value.is_null()) return otherwise;
  const double number = value.number();
  if (!(number >= least && number <= most))
    refuse(fmt::format("{} is {}; it is a number from {} to {}", name, value.dump(-1), least, most));
  return number;
}
std::int64_t whole_in(const Json& from, const char* name, std::int64_t otherwise, std::int64_t least,
                      std::int64_t most) {
  const double number =
      number_in(from, name, static_cast<double>(otherwise), static_cast<double>(least), static_cast<double>(most));
  if (number != std::floor(number)) refuse(fmt::format("{} is {}; it is a whole number", name, number));
  return static_cast<std::int64_t>(number);
}
bool flag_in(const Json& from, const char* name) {
  const Json value = from.at(name);
  if (value.is_null()) return false;
  if (!value.is_bool()) refuse(fmt::format("{} is {}; it is true or false", name, value.dump(-1)));
  return value.dump(-1) == "true";
}

class Completions final : public TextService {
 public:
  explicit Completions(const TextServiceOptions& o)
      : options_(o),
        model_(o.model, load_options(o)),
        slots_(model_, o.slots),
        jobs_(static_cast<std::size_t>(o.slots)) {
    require_memory(static_cast<double>(o.slots) * static_cast<double>(model_.about().state_bytes),
                   fmt::format("{} at the same time", counted(o.slots, "text")), "take fewer", "--slots");
    std::filesystem::path path(o.model);
    if (path.filename().empty()) path = path.parent_path();
    name_ = path.filename().string();
    ends_ = model_.about().ends;
    worker_ = std::thread([this] { work(); });
  }
  ~Completions() override { end(); }

  Asked ask(std::string_view body, Put put) override {
    auto job = std::make_shared<Job>();
    try {
      job->request = read(Json::parse(body, "the body of the request"));
    } catch (const Error& error) {
      refuse(error.what());
    }
    job->cut.emplace(job->request.stop);
    job->random = model::Random(job->request.seed, "generate");
    job->all = job->request.prompt;
    job->put = std::move(put);
    job->created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::lock_guard lock(mutex_);
    if (ending_) throw Refusal(503, "the server is about to end");
    if (waiting_.size() >= static_cast<std::size_t>(options_.queue)) {
      ++refused_;
      throw Refusal(503, fmt::format("{} requests wait already (--queue); try again later", waiting_.size()));
    }
    job->number = ++asked_;
    waiting_.push_back(job);
    news_.notify_all();
    return {job->number, job->request.stream};
  }

  void cancel(std::uint64_t number) override {
    std::unique_lock lock(mutex_);
    const auto is_it = [&](const std::shared_ptr<Job>& job) { return job && job->number == number; };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_it), waiting_.end());
    for (const auto& job : jobs_)
      if (is_it(job)) job->cancelled = true;
  }

  std::string models() const override {
    return Json::object()
               .set("object", "list")
               .set("data",
                    Json::array().push(Json::object().set("id", name_).set("object", "model").set("owned_by", "ttr")))
               .dump(-1) +
           "\n";
  }
  std::string metrics() const override {
    const std::lock_guard lock(mutex_);
    return fmt::format(
        "# HELP ttr_completions_total Completions asked for.\n# TYPE ttr_completions_total counter\n"
        "ttr_completions_total {}\n# HELP ttr_completions_refused_total Completions refused because too many "
        "waited.\n"
        "# TYPE ttr_completions_refused_total counter\nttr_completions_refused_total {}\n"
        "# HELP ttr_completion_tokens_total Tokens made.\n# TYPE ttr_completion_tokens_total counter\n"
        "ttr_completion_tokens_total {}\n# HELP ttr_completions_waiting Completions without a slot.\n"
        "# TYPE ttr_completions_waiting gauge\nttr_completions_waiting {}\n",
        asked_, refused_, tokens_, waiting_.size());
  }
  void end() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      news_.notify_all();
    }
    if (worker_.joinable()) worker_.join();
  }

 private:
  struct Job {
    Request request;
    Put put;
    std::uint64_t number = 0;
    std::int64_t created = 0, made = 0;
    std::vector<std::int32_t> all;
    std::optional<StopText> cut;
    model::Random random{0};
    bool cancelled = false;  // by the mutex
  };

  static model::LoadOptions load_options(const TextServiceOptions& o) {
    if (model::is_trained_here(o.model))
      throw Error(fmt::format("'{}' is a model of `ttr train`; completions are served of published models", o.model),
                  "--model");
    model::LoadOptions how;
    how.threads = o.threads, how.context = o.context, how.tokenizer = o.tokenizer;
    how.activations = model::activations_of(o.activations);
    return how;
  }

  Request read(const Json& json) const {
    if (!json.is_object()) refuse("the body of the request is no object");
    static const char* const known[] = {"model",
                                        "prompt",
                                        "max_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "seed",
                                        "stop",
                                        "stream",
                                        "echo",
                                        "user",
                                        "n",
                                        "best_of",
                                        "stream_options",
                                        "suffix",
                                        "logprobs",
                                        "logit_bias",
                                        "presence_penalty",
                                        "frequency_penalty"};
    json.for_each_name([&](const std::string& name) {
      if (std::none_of(std::begin(known), std::end(known), [&](const char* one) { return name == one; }))
        refuse(
            fmt::format("'{}' is none of the fields of a completion; docs/models.md lists them", name.substr(0, 80)));
    });
    for (const char* name : {"suffix", "logprobs", "logit_bias"})
      if (!json.at(name).is_null()) refuse(fmt::format("{} is not supported", name));
    for (const char* name : {"presence_penalty", "frequency_penalty"})
      if (number_in(json, name, 0, -2, 2) != 0) refuse(fmt::format("{} is not supported; leave it out or 0", name));
    for (const char* name : {"n", "best_of"})
      if (whole_in(json, name, 1, 1, 128) != 1) refuse(fmt::format("{} is not supported; leave it out or 1", name));
    Request r;
    const Json prompt = json.at("prompt");
    if (prompt.is_text()) {
      r.prompt_text = prompt.text();
      if (!model_.tokenizer())
        refuse(fmt::format("{}; give the prompt as a list of the numbers of tokens",
                           model_.about().tokenizer_problem.empty() ? "the model comes without a tokenizer"
                                                                    : model_.about().tokenizer_problem));
      r.prompt = model_.tokenizer()->encode(r.prompt_text);
    } else if (prompt.is_array()) {
      for (std::size_t i = 0; i < prompt.size(); ++i) {
        const double token = prompt.at(i).number();
        if (!(token >= 0 && token < model_.about().vocabulary) || token != std::floor(token))
          refuse(fmt::format(
              "prompt has {} at {}; a list is one of tokens from 0 to {}, and several texts are several requests",
              prompt.at(i).dump(-1).substr(0, 40), i, model_.about().vocabulary - 1));
        r.prompt.push_back(static_cast<std::int32_t>(token));
        r.prompt_text += text_of(r.prompt.back());
      }
    } else refuse("prompt is a text, or a list of the numbers of tokens");
    if (r.prompt.empty()) refuse("the prompt is empty; it has at least one token");
    if (r.prompt.size() >= static_cast<std::size_t>(options_.context))
      refuse(fmt::format("the prompt has {} tokens; the server was started with a context of {} (--context)",
                         r.prompt.size(), options_.context));
    r.tokens = whole_in(json, "max_tokens", 16, 1, options_.most_tokens);
    r.tokens = std::min<std::int64_t>(r.tokens, options_.context - static_cast<std::int64_t>(r.prompt.size()));
    r.sampling.temperature = number_in(json, "temperature", 1, 0, 100);
    r.sampling.top_p = number_in(json, "top_p", 1, 1e-9, 1);
    r.sampling.top_k = static_cast<int>(whole_in(json, "top_k", 0, 0, 1 << 30));
    r.sampling.min_p = number_in(json, "min_p", 0, 0, 1);
    r.sampling.penalty = number_in(json, "repetition_penalty", 1, 0.01, 100);
    r.sampling.check();
    r.seed = static_cast<std::uint64_t>(
        whole_in(json, "seed", static_cast<std::int64_t>(asked_so_far() + 1), 0, std::int64_t{1} << 53));
    const Json stop = json.at("stop");
    if (stop.is_text()) r.stop.push_back(stop.text());
    else if (stop.is_array())
      for (std::size_t i = 0; i < stop.size(); ++i) {
        if (!stop.at(i).is_text()) refuse("stop is a text or a list of texts");
        r.stop.push_back(stop.at(i).text());
      }
    else if (!stop.is_null()) refuse("stop is a text or a list of texts");
    if (r.stop.size() > 16) refuse(fmt::format("stop has {} texts; 16 at most", r.stop.size()));
    for (const std::string& one : r.stop)
      if (one.empty() || one.size() > 1000) refuse("a stop text has 1 to 1000 bytes");
    r.stream = flag_in(json, "stream"), r.echo = flag_in(json, "echo");
    return r;
  }
  std::uint64_t asked_so_far() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::string text_of(std::int32_t token) const {
    return model_.tokenizer() ? model_.tokenizer()->decode(token) : fmt::format("{} ", token);
  }

  Json answer(const Job& job, const std::string& text, const Json& reason) const {
    const Json choice =
        Json::object().set("text", text).set("index", 0).set("logprobs", Json()).set("finish_reason", reason);
    return Json::object()
        .set("id", fmt::format("cmpl-{}", job.number))
        .set("object", "text_completion")
        .set("created", job.created)
        .set("model", name_)
        .set("choices", Json::array().push(choice));
  }
  void give(Job& job, const std::string& text, const char* reason) {
    const auto prompt = static_cast<std::int64_t>(job.request.prompt.size());
    const Json usage = Json::object()
                           .set("prompt_tokens", prompt)
                           .set("completion_tokens", job.made)
                           .set("total_tokens", prompt + job.made);
    if (!job.request.stream) {
      if (!reason) return;
      const std::string whole = (job.request.echo ? job.request.prompt_text : "") + job.cut->text();
      return send(job, {200, answer(job, whole, reason).set("usage", usage).dump(-1) + "\n", true});
    }
    std::string lines;
    if (!text.empty() || reason) {
      Json piece = answer(job, text, reason ? Json(reason) : Json());
      if (reason) piece.set("usage", usage);
      lines = "data: " + piece.dump(-1) + "\n\n";
    }
    if (reason) lines += "data: [DONE]\n\n";
    if (!lines.empty()) send(job, {200, std::move(lines), reason != nullptr});
  }
  void send(Job& job, Piece piece) {
    const std::lock_guard lock(mutex_);
    const bool last = piece.last;
    if (!job.cancelled) job.put(std::move(piece));
    job.cancelled |= last;
  }

  // The next token of a text, or -1 where it ends.
  std::int32_t next(Job& job, std::span<const float> logits) {
    {
      const std::lock_guard lock(mutex_);
      if (job.cancelled) return -1;
      ++tokens_;
    }
    if (job.made == 0 && job.request.echo && job.request.stream) give(job, job.request.prompt_text, nullptr);
    wide_.assign(logits.begin(), logits.end());
    const std::int32_t token = draw(shares_of(wide_, job.request.sampling, job.all), job.random);
    ++job.made;
    const char* reason = nullptr;
    std::string text;
    if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) reason = "stop";
    else {
      job.all.push_back(token);
      text = job.cut->add(text_of(token));
      if (job.cut->stopped()) reason = "stop";
      else if (job.made >= job.request.tokens) reason = "length";
    }
    if (reason && !job.cut->stopped()) text += job.cut->rest();
    give(job, text, reason);
    return reason ? -1 : token;
  }

  void fail(Job& job, const std::string& why) {
    const std::string text = Json::object().set("error", Json::object().set("message", why)).dump(-1);
    send(job, {500, job.request.stream ? "data: " + text + "\n\n" : text + "\n", true});
  }

  void work() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return ending_ || !waiting_.empty() || slots_.taken() > 0; });
        if (ending_) break;
        while (!waiting_.empty() && slots_.taken() < slots_.most()) {
          const std::shared_ptr<Job> job = waiting_.front();
          waiting_.pop_front();
          jobs_[static_cast<std::size_t>(slots_.join(job->request.prompt))] = job;
        }
      }
      try {
        slots_.round([&](int slot, std::span<const float> logits) {
          const std::shared_ptr<Job> job = jobs_[static_cast<std::size_t>(slot)];
          std::int32_t token = -1;
          try {
            token = next(*job, logits);
          } catch (const std::exception& error) {
            fail(*job, error.what());
          }
          if (token < 0) forget(slot);
          return token;
        });
      } catch (const std::exception& error) {  // the texts of the call have left
        for (std::size_t i = 0; i < jobs_.size(); ++i)
          if (jobs_[i] && !is_taken(static_cast<int>(i))) {
            fail(*jobs_[i], error.what());
            forget(static_cast<int>(i));
          }
      }
    }
    // What there is, and no more.
    std::deque<std::shared_ptr<Job>> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(waiting_);
      for (auto& job : jobs_)
        if (job) all.push_back(std::move(job));
    }
    for (const auto& job : all) give(*job, job->cut->rest(), "length");
  }
  bool is_taken(int slot) {
    try {
      (void)slots_.sequence(slot);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  void forget(int slot) {
    const std::lock_guard lock(mutex_);
    jobs_[static_cast<std::size_t>(slot)].reset();
  }

  TextServiceOptions options_;
  std::string name_;
  model::LanguageModel<float> model_;
  model::Slots<float> slots_;
  std::vector<std::int32_t> ends_;
  std::vector<double> wide_;

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<std::shared_ptr<Job>> jobs_;  // of the slots
  std::uint64_t asked_ = 0;
  std::int64_t refused_ = 0, tokens_ = 0;
  bool ending_ = false;
  std::thread worker_;
};

}  // namespace

std::unique_ptr<TextService> open_text_service(const TextServiceOptions& o) {
  const auto range = [](int number, int low, int high, const char* option) {
    if (number < low || number > high)
      throw Error(fmt::format("{} {} is out of range; give {} to {}", option, number, low, high), option);
  };
  range(o.slots, 1, 1024, "--slots");
  range(o.queue, 0, 100000, "--queue");
  range(o.context, 2, 1 << 30, "--context");
  range(o.most_tokens, 1, 1 << 30, "--max-tokens");
  return std::make_unique<Completions>(o);
}

}  // namespace ttr::cli
