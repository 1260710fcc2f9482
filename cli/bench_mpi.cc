// `ttr bench mpi`: one sequence on all ranks. What a call sends is counted and compared with the formulas of
// docs/scaling.md, which are written here a second time, from shapes alone; a difference is an error.
#include "bench_mpi.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "commands.h"
#include "json.h"
#include "progress.h"
#include "ranks.h"
#include "runner.h"
#include "text_table.h"
#include "ttr/mpi.h"
#include "ttr/ttr.h"

namespace ttr::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The tensors of a rank's piece; a few thousand tokens of random numbers again and again.
class Piece {
 public:
  Piece(const Plan& plan, std::int64_t time, bool both) : plan_(plan), time_(time) {
    std::uint64_t seed = 1;
    for (const InputInfo& info : plan.inputs()) {
      in_[info.name] = filled(info, ++seed);
      if (info.differentiable && both) d_in_[info.name] = held(info.shape);
    }
    for (const InputInfo& info : plan.outputs()) {
      out_[info.name] = held(info.shape);
      if (info.differentiable && both) d_out_[info.name] = filled(info, ++seed);
    }
  }
  Inputs in_, d_out_;
  Outputs out_, d_in_;

 private:
  Tensor held(const std::string& shape) {
    std::size_t n = 1;
    for (const std::ptrdiff_t e : plan_.extents(shape, time_)) n *= static_cast<std::size_t>(e);
    memory_.push_back(std::make_unique<float[]>(std::max<std::size_t>(n, 1)));
    return dense_tensor<Tensor>(plan_, memory_.back().get(), shape, time_);
  }
  Tensor filled(const InputInfo& info, std::uint64_t seed) {
    const Tensor t = held(info.shape);
    const std::vector<double> some = random_input(plan_, info, std::min<std::int64_t>(time_, 1024), seed);
    std::size_t n = 1;
    for (int d = 0; d < t.rank; ++d) n *= static_cast<std::size_t>(t.extent[static_cast<std::size_t>(d)]);
    for (std::size_t i = 0; i < n && !some.empty(); ++i)
      static_cast<float*>(t.data)[i] = static_cast<float>(some[i % some.size()]);
    return t;
  }
  const Plan& plan_;
  std::int64_t time_;
  std::vector<std::unique_ptr<float[]>> memory_;
};

// Numbers of a map beside the state, per head; below zero: the formula is not written here.
double map_numbers(const std::string& layer, double K) {
  for (const char* name :
       {"mamba-2", "retnet", "simple-gla", "linear-attention", "lightning-attention", "log-linear-attention"})
    if (layer == name) return 1;
  for (const char* name : {"gla", "hgrn-2", "rwkv-6"})
    if (layer == name) return K;
  for (const char* name : {"deltanet", "gated-deltanet", "kda", "rwkv-7", "longhorn", "nlms"})
    if (layer == name) return K * K;
  return -1;
}

bool has_state(const Plan& plan, std::string_view name) {
  return std::any_of(plan.states().begin(), plan.states().end(),
                     [&](const StateInfo& info) { return info.name == name; });
}

struct Formula {
  // Of all ranks; below zero: unknown.
  double messages = -1, bytes = -1, collectives = -1, collective_bytes = -1, compositions = -1;
};

// Messages that so many bytes are.
double parts_of(double bytes) {
  return std::max(1.0, std::ceil(bytes / static_cast<double>(mpi::largest_message())));
}

// Of a forward, and with `both` of a backward after it. Collective calls: one that opens (32 bytes), one that closes (8),
// forwards one more (8) where the start is kept or states grow; and the sums of gradients without time.
Formula formula_of(const Plan& plan, const MpiBenchOptions& o, const std::string& layer, mpi::Way way, int groups,
                   int ranks, bool both) {
  Formula f;
  const double B = o.batch, H = o.heads, K = plan.shape().key_dim, V = plan.shape().value_dim, P = ranks;
  double constant = 0, sums = 0;
  for (const InputInfo& info : plan.inputs())
    if (info.differentiable && info.shape.find_first_of("TP") == std::string::npos) {
      double n = 4;
      for (const std::ptrdiff_t e : plan.extents(info.shape, 1)) n *= static_cast<double>(e);
      if (P > 1) ++sums, constant += n;
    }
  f.collectives = P * (2 + both), f.collective_bytes = P * (40 + 8 * both);
  if (both) f.collectives += P * (2 + sums), f.collective_bytes += P * (40 + constant);
  f.messages = f.bytes = f.compositions = 0;
  const double levels = layer == "log-linear-attention" ? static_cast<double>(plan.extents("L", 1)[0]) : 0;
  const double state = 4 * H * K * V * std::max(1.0, levels), map = map_numbers(layer, K);  // of a sequence
  const auto piece = [&](int r) {                                                           // tokens
    return static_cast<double>(o.time * (r + 1) / ranks - o.time * r / ranks);
  };
  if (way == mpi::Way::ring) {
    // i's queries and j's pairs: keys and values go to i if it is near, else queries go to j and answers come back; of those
    // half of the way round one half each. Backwards once more for o, then for gradients, which come back too.
    f.collectives += 2 * P,
        f.collective_bytes += 16 * P;  // room in states, or two passes, and whether all can make the call
    const double gate = has_state(plan, "g") ? 1 : 0, norm = layer.starts_with("unnormalised") ? 0 : 1;
    if (gate > 0)  // sums of gates of every piece in each pass; backwards what becomes of those between
      f.collectives += P * (both ? 3 : 1), f.collective_bytes += 8 * P * B * H * (both ? 2 + P : 1);
    for (int i = 0; i < ranks; ++i)
      for (int j = 0; j < i; ++j) {
        const int round = 2 * (i - j);
        if (round <= ranks) {
          const double block = B * (8 + 4 * H * (K + V + gate) * piece(j));
          f.messages += (both ? 4 : 1) * parts_of(block), f.bytes += (both ? 4 : 1) * block;
        }
        const double sent = round < ranks ? 0 : round > ranks ? piece(i) : std::floor(piece(i) / 2);
        if (sent == 0) continue;
        // Numbers of a query: there and back, and backwards once more with o, its gradient and the like.
        const double query = 4 * B * H * sent, there = query * (K + gate), back = query * (V + norm);
        const double all_there = query * (K + V + 2 * norm + gate), all_back = query * (K + gate);
        f.messages += parts_of(there) + parts_of(back), f.bytes += there + back;
        if (both)
          f.messages += parts_of(there) + parts_of(back) + parts_of(all_there) + parts_of(all_back),
              f.bytes += there + back + all_there + all_back;
      }
    return f;
  }
  if (way == mpi::Way::gather) {  // lists of pairs to all later ranks; their gradients back
    if (!both) f.collectives += P, f.collective_bytes += 8 * P;
    for (int j = 0; j + 1 < ranks; ++j) {
      const double list =
          static_cast<double>(plan.footprint(std::max<std::int64_t>(1, std::llround(piece(j)))).state);
      f.messages += (P - 1 - j) * (1 + both) * parts_of(list), f.bytes += (P - 1 - j) * (1 + both) * list;
    }
    return f;
  }
  if (way ==
      mpi::Way::halo) {  // the state that the last tokens make, but for counts, which all ranks get from the first
    double counts = 0, others = 0;
    for (const StateInfo& info : plan.states())
      if (info.name != "kept") ++(info.name == "tokens" || info.name == "position" ? counts : others);
    f.collectives += P * (1 + (plan.tokens_kept({}) >= 0 && !both ? 1 : 0));
    f.collective_bytes += P * (8 * B * counts + (plan.tokens_kept({}) >= 0 && !both ? 8 : 0));
    if (others == 0) return f;
    const double end = static_cast<double>(plan.footprint(o.time).state);
    f.messages = (P - 1) * (1 + both) * parts_of(end), f.bytes = (P - 1) * (1 + both) * end;
    return f;
  }
  if (map < 0 || plan.tokens_kept({}) >= 0) return {};
  if (way == mpi::Way::relay) {
    const double passes = both ? 2 : 1, rows = std::max(1.0, B / groups),
                 parts = groups / std::min<double>(groups, B);
    // A group's message: its part of the state, and for every sequence of it the count of tokens.
    // Levels belong to tokens as the kernel counts them, which is a number more.
    const double message = rows * state / parts + (levels > 0 ? 16 : 8) * rows;
    f.messages = passes * (P - 1) * groups * parts_of(message), f.bytes = passes * (P - 1) * groups * message;
  } else {
    // Of levels: where a piece begins and ends, and what the first state has counted.
    const double element = B / groups * (8 + (levels > 0 ? 16 : 0) + state + 4 * H * map);
    if (levels > 0) f.collectives += P, f.collective_bytes += P * 8 * B;
    // From every rank to the next, then y_r to r + s for s = 1, 2, 4, .. below P - 1, which is composed there.
    double sent = P - 1, composed = 0;
    for (double s = 1; s < P - 1; s *= 2) sent += P - 1 - s, composed += P - 1 - s;
    const double scans = groups * (1 + both);
    f.messages = scans * sent * parts_of(element), f.bytes = scans * sent * element;
    f.compositions = scans * composed;
  }
  return f;
}

struct Row {
  std::string layer, way;
  int groups = 0;
  double seconds = 0, local = 0, communication = 0, waiting = 0;  // the last three: means over ranks
  double composing = 0;                                           // of one composition
  Formula counted, expected;
  double peak = 0;  // bytes, the largest of a rank
  bool agrees() const {
    return expected.messages < 0 ||
           (counted.messages == expected.messages && counted.bytes == expected.bytes &&
            counted.collectives == expected.collectives && counted.collective_bytes == expected.collective_bytes &&
            counted.compositions == expected.compositions);
  }
};

// Half a round trip between the first two ranks, of a few bytes and of many: latency, and bytes per second.
struct Network {
  double latency = 0, rate = 0;
};
Network network_of() {
  Network found;
  if (ranks().count() < 2) return found;
  const int rank = ranks().rank();
  std::vector<char> bytes(8 << 20);
  double seconds[2] = {HUGE_VAL, HUGE_VAL};
  const int sizes[2] = {8, static_cast<int>(bytes.size())};
  for (int i = 0; i < 2 && rank < 2; ++i)
    for (int run = 0; run < (i ? 10 : 300); ++run) {
      const Clock::time_point begin = Clock::now();
      if (rank == 0) MPI_Send(bytes.data(), sizes[i], MPI_BYTE, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(bytes.data(), sizes[i], MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(bytes.data(), sizes[i], MPI_BYTE, 0, 0, MPI_COMM_WORLD);
      seconds[i] = std::min(seconds[i], std::chrono::duration<double>(Clock::now() - begin).count() / 2);
    }
  found.latency = seconds[0], found.rate = static_cast<double>(bytes.size()) / seconds[1];
  std::vector<Network> all(static_cast<std::size_t>(ranks().count()));
  ranks().gather(&found, sizeof found, all.data());
  return all.front();
}

template <class Number>
std::vector<Number> of_all(Number mine) {
  std::vector<Number> all(static_cast<std::size_t>(ranks().count()));
  ranks().gather(&mine, sizeof mine, all.data());
  return all;
}

// Collective: the signal that has come to any of the ranks, so that no rank waits for one that has left.
int stopped() {
  const std::vector<int> all = of_all(interrupted());
  return *std::max_element(all.begin(), all.end());
}

Row measure(const MpiBenchOptions& o, const std::string& layer, const Plan& plan, mpi::Way way) {
  const int rank = ranks().rank(), count = ranks().count();
  const std::int64_t time = o.time * (rank + 1) / count - o.time * rank / count;
  mpi::Settings settings;
  settings.way = way, settings.groups = o.groups;
  mpi::Split split(plan, MPI_COMM_WORLD, settings);
  const bool both = o.pass == "both";
  Piece piece(plan, time, both);
  const std::size_t bytes = split.state_bytes(time);
  std::vector<std::byte> state(bytes), start(bytes);
  Row row;
  row.layer = layer, row.way = to_string(split.way()),
  row.groups = split.way() == mpi::Way::relay || split.way() == mpi::Way::scan ? split.groups() : 0;
  row.seconds = HUGE_VAL;
  mpi::Counts counts;
  for (int i = -1; i < o.runs; ++i) {  // the first one warms up
    if (plan.reset({state.data(), bytes}) != Status::ok) throw Error("the state cannot be reset");
    if (stopped()) return row;
    split.reset_counts();
    const Clock::time_point begin = Clock::now();
    split.forward(piece.in_, {state.data(), bytes}, piece.out_, both ? State{start.data(), bytes} : State{});
    if (both) split.backward(piece.in_, {start.data(), bytes}, piece.d_out_, {}, piece.d_in_);
    const double own = std::chrono::duration<double>(Clock::now() - begin).count();
    const std::vector<double> all = of_all(own);
    const double longest = *std::max_element(all.begin(), all.end());
    if (i >= 0 && longest < row.seconds) row.seconds = longest, counts = split.counts();
  }
  double composing = 0;
  for (const mpi::Counts& one : of_all(counts)) {
    composing += one.composing;
    row.local += one.local / count, row.communication += one.communication / count,
        row.waiting += one.waiting / count;
  }
  row.counted = {0, 0, 0, 0, 0};
  for (const mpi::Counts& one : of_all(counts)) {
    row.counted.messages += static_cast<double>(one.messages), row.counted.bytes += static_cast<double>(one.bytes);
    row.counted.collectives += static_cast<double>(one.collectives);
    row.counted.collective_bytes += static_cast<double>(one.collective_bytes);
    row.counted.compositions += static_cast<double>(one.compositions);
  }
  row.composing = composing / std::max(1.0, row.counted.compositions);
  row.expected = formula_of(plan, o, layer, split.way(), split.groups(), count, both);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const std::vector<double> peaks = of_all(static_cast<double>(usage.ru_maxrss) * 1024);
  row.peak = *std::max_element(peaks.begin(), peaks.end());
  return row;
}

Json to_json(const Row& row, const MpiBenchOptions& o) {
  Json one = Json::object().set("layer", row.layer).set("way", row.way).set("ranks", ranks().count());
  one.set("groups", row.groups)
      .set("pass", o.pass)
      .set("time", static_cast<double>(o.time))
      .set("seconds", row.seconds);
  one.set("local", row.local).set("communication", row.communication).set("waiting", row.waiting);
  one.set("messages", row.counted.messages).set("bytes", row.counted.bytes);
  one.set("collectives", row.counted.collectives).set("collective_bytes", row.counted.collective_bytes);
  one.set("compositions", row.counted.compositions).set("seconds_of_a_composition", row.composing);
  one.set("as_formula", row.expected.messages < 0 ? Json() : Json(row.agrees())).set("peak_bytes", row.peak);
  return one;
}

}  // namespace

int run_bench_mpi(const MpiBenchOptions& given) {
  const InterruptGuard guard;
  MpiBenchOptions o = given;
  if (o.quick) o.time = std::min<std::int64_t>(o.time, 512), o.runs = 1;
  const auto at_least = [](const char* option, std::int64_t value, std::int64_t low) {
    if (value < low) throw Error(fmt::format("{} is {}; it is at least {}", option, value, low), option);
  };
  at_least("--runs", o.runs, 1), at_least("--time", o.time, ranks().count()), at_least("--groups", o.groups, 0);
  bool agree = true;
  const Network network = network_of();
  Json all = Json::array();
  TextTable table({"layer", "way", "groups", "ms", "tokens/s", "local ms", "comm ms", "waiting ms", "messages",
                   "bytes", "collectives", "their bytes", "compositions", "formula", "peak"});
  for (const std::string& layer : o.layers) {
    const Plan plan = ttr::plan(layer, {o.batch, o.heads, 0, o.key_dim, o.value_dim > 0 ? o.value_dim : o.key_dim});
    const std::vector<mpi::Way> ways = mpi::Split::ways(plan);
    for (const std::string& name : o.ways) {
      mpi::Way way = mpi::Way::best;
      if (name == "relay") way = mpi::Way::relay;
      else if (name == "scan") way = mpi::Way::scan;
      else if (name == "ring") way = mpi::Way::ring;
      else if (name == "gather") way = mpi::Way::gather;
      else if (name == "halo") way = mpi::Way::halo;
      else if (name != "best")
        throw Error("there is no way '" + name + "'; there are relay, scan, gather, ring, halo and best", "--way");
      if (way != mpi::Way::best && std::find(ways.begin(), ways.end(), way) == ways.end()) continue;
      const Row row = measure(o, layer, plan, way);
      if (const int signal = stopped()) return 128 + signal;
      agree = agree && row.agrees();
      all.push(to_json(row, o));
      const auto ms = [](double s) { return short_number(1e3 * s); };
      table.row({row.layer, row.way, row.groups ? std::to_string(row.groups) : "-", ms(row.seconds),
                 short_number(static_cast<double>(o.time * o.batch) / row.seconds), ms(row.local),
                 ms(row.communication), ms(row.waiting), fmt::format("{}", row.counted.messages),
                 fmt::format("{}", row.counted.bytes), fmt::format("{}", row.counted.collectives),
                 fmt::format("{}", row.counted.collective_bytes), fmt::format("{}", row.counted.compositions),
                 row.expected.messages < 0 ? "-"
                 : row.agrees()            ? "equal"
                                           : "DIFFERS",
                 short_bytes(row.peak)});
    }
  }
  if (ranks().first()) {
    if (o.json)
      fmt::print("{}\n", Json::object()
                             .set("ranks", ranks().count())
                             .set("latency", network.latency)
                             .set("bytes_per_second", network.rate)
                             .set("cases", all)
                             .dump());
    else {
      fmt::print("{} rank{}, {} tokens, {} heads of {} x {}, {}\n", ranks().count(), ranks().count() > 1 ? "s" : "",
                 o.time, o.heads, o.key_dim, o.value_dim > 0 ? o.value_dim : o.key_dim, o.pass);
      if (ranks().count() > 1)
        fmt::print("from rank 0 to rank 1: latency {} us, {} GB/s\n", short_number(1e6 * network.latency),
                   short_number(1e-9 * network.rate));
      fmt::print("{}", table.text());
    }
  }
  return agree ? 0 : 1;
}

}  // namespace ttr::cli
