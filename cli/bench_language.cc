// `ttr bench language`: prefill and decode of language models beside what the machine permits.
//
//   decode    tokens/s of one token after another (or of several sequences at once); the share is of the bytes per second that
//             the same threads read from memory, counting the weights that a token reads once per call:
//             token_bytes x calls/s / bandwidth; beside it the same with what sequences remember, which a token reads and
//             writes: token_bytes + 2 state_bytes of each sequence
//   prefill   tokens/s of a prompt; the share is of the multiply-adds per second out of registers, counting products with
//             weights alone: token_products x tokens/s / peak
//   first     seconds from a prompt to the logits of its end
//   stated    weights, workspace, and a state for the prompt and for each sequence that is decoded
//   resident  memory that the process has more than before it loaded the model, after the last token. Rows of the embedding that
//             no token asked for are not in it; what holds names is
//
// Bandwidth and peak are measured between the runs, because shared machines change; the best of each counts, and the median
// of the decoded tokens, the best of the prompts. Synthetic models (synthetic_model.h) are written to a folder that is
// deleted in the end; a path measures a model of one's own.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "allocation_count.h"
#include "aside.h"
#include "bench.h"
#include "bench_machine.h"
#include "json.h"
#include "progress.h"
#include "standard_files.h"
#include "synthetic_model.h"
#include "text_table.h"
#include "ttr/language.h"
#include "ttr/random.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? std::numeric_limits<double>::quiet_NaN() : x[x.size() / 2];
}

// Of this process; NaN where the system does not tell.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = std::numeric_limits<double>::quiet_NaN();
  file >> all >> resident;
  return file ? resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) : std::numeric_limits<double>::quiet_NaN();
}

class Folder {
 public:
  explicit Folder(const std::string& where) {
    path_ = (where.empty() ? fs::temp_directory_path() : fs::path(where)).string() + "/ttr-bench-language-XXXXXX";
    if (!::mkdtemp(path_.data()))
      throw Error(fmt::format("cannot make a folder in '{}'; --folder names another place",
                              where.empty() ? fs::temp_directory_path().string() : where),
                  "--folder");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Decoded {
  int batch = 1;
  double seconds = 0;      // of a call
  double allocations = 0;  // of a call; NaN: not counted
};
struct Result {
  std::string model, type;
  model::ModelAbout about;
  int prompt = 0;
  double first = 0;                // seconds
  double bandwidth = 0, peak = 0;  // GB/s, GFLOP/s
  double resident = 0;             // bytes, measured
  double stated = 0;               // bytes, by the model and the sequences there were
  std::vector<Decoded> decoded;

  double prefill_flops() const {
    return 2 * (static_cast<double>(about.token_products) * prompt + static_cast<double>(about.head_products));
  }
  double prefill_share() const { return prefill_flops() / first * 1e-9 / peak; }
  double decode_share(const Decoded& d) const {
    return static_cast<double>(about.token_bytes) / d.seconds * 1e-9 / bandwidth;
  }
  double moved_bytes(const Decoded& d) const {
    return static_cast<double>(about.token_bytes) + 2.0 * d.batch * static_cast<double>(about.state_bytes);
  }
  double moved_share(const Decoded& d) const { return moved_bytes(d) / d.seconds * 1e-9 / bandwidth; }
};

class Measurement {
 public:
  Measurement(const LanguageBenchOptions& o, int threads) : o_(o), threads_(threads) {}

  // Empty: interrupted.
  std::optional<Result> measure(const std::string& name, const std::string& type, const std::string& path) {
    model::LoadOptions how;
    how.threads = threads_;
    if (o_.piece > 0) how.piece = o_.piece;
    how.context = o_.prompt + 4 * o_.tokens + 64;
    how.activations = model::activations_of(o_.activations);
    const double before_loading = resident_bytes();
    model::LanguageModel<float> model(path, how);
    Result result;
    result.model = name, result.type = type, result.about = model.about(), result.prompt = o_.prompt;
    model::Random random(1, "bench language");
    const auto draw = [&] {
      return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(result.about.vocabulary)));
    };
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(o_.prompt));
    for (std::int32_t& token : prompt) token = draw();
    look_at_machine(result);
    // The prompt: once to bring the file in, then the best of two.
    const int prompts = o_.quick ? 1 : 2;
    result.first = std::numeric_limits<double>::infinity();
    model::Sequence<float> sequence(model);
    (void)model.prefill(sequence, std::span(prompt).first(std::min<std::size_t>(prompt.size(), 32)));
    for (int i = 0; i < prompts; ++i) {
      if (interrupted()) return {};
      sequence.reset();
      const auto begin = Clock::now();
      (void)model.prefill(sequence, prompt);
      result.first = std::min(result.first, since(begin));
      look_at_machine(result);
    }
    for (const int batch : o_.batches) {
      std::vector<model::Sequence<float>> sequences(static_cast<std::size_t>(batch), sequence);
      std::vector<model::Sequence<float>*> slots(sequences.size());
      std::transform(sequences.begin(), sequences.end(), slots.begin(), [](auto& one) { return &one; });
      std::vector<std::int32_t> tokens(slots.size());
      std::vector<double> seconds(static_cast<std::size_t>(o_.tokens));
      long before = 0;
      for (int i = -2; i < o_.tokens; ++i) {  // two to warm up
        if (interrupted()) return {};
        for (std::int32_t& token : tokens) token = draw();
        if (i == 0) count_allocations(true), before = allocations();
        const auto begin = Clock::now();
        (void)model.decode(slots, tokens);
        const double taken = since(begin);
        if (i >= 0) seconds[static_cast<std::size_t>(i)] = taken;
      }
      const double asked = static_cast<double>(allocations() - before) / o_.tokens;
      count_allocations(false);
      result.decoded.push_back(
          {batch, median(seconds), counts_allocations() ? asked : std::numeric_limits<double>::quiet_NaN()});
      result.resident = std::max(result.resident, resident_bytes() - before_loading);
      const std::size_t states = static_cast<std::size_t>(1 + batch) * result.about.state_bytes;
      result.stated = std::max(
          result.stated, static_cast<double>(result.about.weight_bytes + result.about.workspace_bytes + states));
      look_at_machine(result);
    }
    return result;
  }

 private:
  void look_at_machine(Result& result) {
    const double seconds = o_.quick ? 0.002 : 0.05;
    const std::size_t bytes = o_.quick ? std::size_t{64} << 20 : std::size_t{512} << 20;
    result.bandwidth = std::max(result.bandwidth, memory_bandwidth(Traffic::read, bytes, threads_, 2 * seconds));
    result.peak = std::max(result.peak, fma_gflops(Type::f32, threads_, seconds));
  }
  const LanguageBenchOptions& o_;
  int threads_;
};

Json json_of(const Result& r) {
  Json decode = Json::array();
  for (const Decoded& d : r.decoded)
    decode.push(Json::object()
                    .set("sequences", d.batch)
                    .set("seconds", d.seconds)
                    .set("tokens_per_second", d.batch / d.seconds)
                    .set("share_of_bandwidth", r.decode_share(d))
                    .set("bytes_with_states", r.moved_bytes(d))
                    .set("share_with_states", r.moved_share(d))
                    .set("allocations", d.allocations));
  return Json::object()
      .set("model", r.model)
      .set("type", r.type)
      .set("architecture", r.about.architecture)
      .set("parameters", r.about.parameters)
      .set("weight_bytes", r.about.weight_bytes)
      .set("token_bytes", r.about.token_bytes)
      .set("state_bytes", r.about.state_bytes)
      .set("workspace_bytes", r.about.workspace_bytes)
      .set("stated_bytes", r.stated)
      .set("resident_bytes", r.resident)
      .set("bandwidth_gb_per_second", r.bandwidth)
      .set("peak_gflops", r.peak)
      .set("prompt_tokens", r.prompt)
      .set("seconds_to_first_token", r.first)
      .set("prefill_tokens_per_second", r.prompt / r.first)
      .set("share_of_peak", r.prefill_share())
      .set("decode", decode);
}

void print(const std::vector<Result>& results, int threads, const std::string& activations) {
  TextTable table({"model", "type", "decode tok/s", "% bandwidth", "with states", "prefill tok/s", "% peak",
                   "first token", "weights", "state", "workspace", "stated", "resident", "GB/s", "GFLOP/s"});
  for (const Result& r : results)
    for (const Decoded& d : r.decoded)
      table.row({d.batch > 1 ? fmt::format("{} x {}", r.model, d.batch) : r.model, r.type,
                 short_number(d.batch / d.seconds), percent_text(100 * r.decode_share(d)),
                 percent_text(100 * r.moved_share(d)), short_number(r.prompt / r.first),
                 percent_text(100 * r.prefill_share()), fmt::format("{} s", short_number(r.first)),
                 short_bytes(static_cast<double>(r.about.weight_bytes)),
                 short_bytes(static_cast<double>(r.about.state_bytes)),
                 short_bytes(static_cast<double>(r.about.workspace_bytes)), short_bytes(r.stated),
                 short_bytes(r.resident), short_number(r.bandwidth), short_number(r.peak)});
  fmt::print(
      "{}{} threads, {} activations; first token: of a prompt of {} tokens; bandwidth counts the weights that a "
      "token "
      "reads, with states also those, read and written\n",
      table.text(), threads, activations, results.empty() ? 0 : results[0].prompt);
}

}  // namespace

int run_bench_language(const LanguageBenchOptions& given) {
  LanguageBenchOptions o = given;
  if (o.quick) o.prompt = std::min(o.prompt, 40), o.tokens = std::min(o.tokens, 4);
  const auto within = [](const char* name, int value, int least, int most) {
    if (value < least || value > most)
      throw Error(fmt::format("{} is {}; it is {} to {}", name, value, least, most), name);
  };
  static_cast<void>(model::activations_of(o.activations));
  within("--prompt", o.prompt, 1, 1'000'000), within("--tokens", o.tokens, 1, 100'000);
  within("--piece", o.piece, 0, 65536), within("--threads", o.threads, 0, 256);
  for (const int batch : o.batches) within("--batch", batch, 1, 1024);
  const int threads = o.threads > 0 ? o.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (o.models.empty()) o.models = synthetic_architectures();
  struct Job {
    std::string model, type;
    bool path;
  };
  std::vector<Job> jobs;
  for (const std::string& model : o.models) {
    const std::vector<std::string> known = synthetic_architectures();
    if (std::find(known.begin(), known.end(), model) == known.end()) {
      std::error_code failed;
      if (!fs::exists(model, failed))
        throw Error(fmt::format("'{}' is no file and none of rwkv-7, mamba-2, gated-deltanet", model), "model");
      jobs.push_back({model, "-", true});
    } else
      for (const std::string& type : o.types) jobs.push_back({model, type, false});
  }
  const InterruptGuard guard;
  std::vector<Result> results;
  Progress progress("bench language", true);
  for (const Job& job : jobs) {
    if (interrupted()) break;
    progress.update(static_cast<double>(results.size()), static_cast<double>(jobs.size()),
                    job.model + " " + job.type);
    std::optional<Folder> folder;
    std::string path = job.model;
    if (!job.path) {
      folder.emplace(o.folder);
      path = write_synthetic_model({job.model, job.type, o.quick}, folder->path());
    }
    std::optional<std::optional<Result>> result =
        made_aside([o, threads, job, path] { return Measurement(o, threads).measure(job.model, job.type, path); });
    if (!result || !*result) break;
    results.push_back(std::move(**result));
  }
  progress.finish();
  if (o.json) {
    Json list = Json::array();
    for (const Result& result : results) list.push(json_of(result));
    fmt::print("{}\n", Json::object()
                           .set("threads", threads)
                           .set("vector_unit", vector_unit())
                           .set("activations", o.activations)
                           .set("rows", list)
                           .dump());
  } else print(results, threads, o.activations);
  if (results.size() < jobs.size()) {
    tell("ttr: interrupted after {} of {} rows; those above are complete\n", results.size(), jobs.size());
    return 128 + interrupted();
  }
  return 0;
}

}  // namespace ttr::cli
