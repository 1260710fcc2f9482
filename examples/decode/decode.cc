// A small server of one layer: requests share a batch of four slots and join and leave it as they come and end.
//
//   decode                        serves eight requests, prints what each of them got, compares with decoding it alone
//   decode --stop 20 --save DIR   stops after twenty rounds and leaves everything in DIR
//   decode --resume DIR           goes on there, in another process: the same tokens
//
// A round is one call. Its packed sequences are of unlike lengths: a request that has just joined brings its whole prompt,
// one that decodes its newest token and two more that were guessed, an empty slot nothing. Guesses that turn out wrong are
// taken back (Plan::rewind), so that the state is what it would be without them.
//
// The "model" around the layer is a table of random numbers: token -> q, k, v, beta, g, and answer -> the likeliest token.
#include <ttr/ttr.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int slots = 4, heads = 2, dim = 16, vocabulary = 48, guesses = 2;
constexpr int width = heads * dim;
constexpr std::int64_t longest_prompt = 40, longest_call = slots * (longest_prompt + guesses + 1);

struct Request {
  int number = -1;  // -1: the slot is empty
  std::size_t wanted = 0;
  std::vector<int> tokens;   // prompt, then what was decoded; the last is not in the state yet
  std::size_t prompt = 0;    // tokens of it
  bool has_started = false;  // the prompt is in the state
};

std::vector<Request> all_requests() {
  std::mt19937 random(7);
  std::vector<Request> all(8);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].number = static_cast<int>(i);
    all[i].prompt = 1 + random() % longest_prompt, all[i].wanted = 8 + random() % 25;
    for (std::size_t t = 0; t < all[i].prompt; ++t) all[i].tokens.push_back(static_cast<int>(random() % vocabulary));
  }
  return all;
}

// Embeddings and read-out.
struct Tables {
  std::vector<float> q, k, v, beta, g, read;
  Tables() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, int columns, auto&& made) {
      x.resize(static_cast<std::size_t>(vocabulary * columns));
      for (float& value : x) value = made(normal(random));
    };
    fill(q, width, [](float x) { return x / 2; });
    fill(k, width, [](float x) { return x / 4; });
    fill(v, width, [](float x) { return x; });
    fill(beta, heads, [](float x) { return 1 / (1 + std::exp(-x)); });
    fill(g, heads, [](float x) { return -0.05f * std::abs(x); });
    fill(read, width, [](float x) { return x; });
  }
  int likeliest(const float* answer) const {
    int best = 0;
    float most = -1e30f;
    for (int token = 0; token < vocabulary; ++token) {
      float sum = 0;
      for (int i = 0; i < width; ++i) sum += answer[i] * read[static_cast<std::size_t>(token * width + i)];
      if (sum > most) most = sum, best = token;
    }
    return best;
  }
};

// The tensors of a call, filled token by token.
struct Call {
  std::vector<float> q, k, v, beta, g, o;
  std::int64_t tokens = 0;
  explicit Call(std::int64_t most)
      : q(static_cast<std::size_t>(most * width)),
        k(q.size()),
        v(q.size()),
        beta(static_cast<std::size_t>(most * heads)),
        g(beta.size()),
        o(q.size()) {}
  void add(const Tables& tables, int token) {
    const auto copy = [&](const std::vector<float>& from, std::vector<float>& to, int columns) {
      std::copy_n(from.begin() + token * columns, columns, to.begin() + tokens * columns);
    };
    copy(tables.q, q, width), copy(tables.k, k, width), copy(tables.v, v, width);
    copy(tables.beta, beta, heads), copy(tables.g, g, heads);
    ++tokens;
  }
  const float* answer(std::int64_t token) const { return o.data() + token * width; }
};

void check(ttr::Status status, const char* what) {
  if (status == ttr::Status::ok) return;
  std::fprintf(stderr, "decode: %s: %s\n", what, std::string(ttr::to_string(status)).c_str());
  std::exit(1);
}

// What followed the last time that the newest token was there; the token itself if it was not.
int guess_after(const std::vector<int>& tokens) {
  for (std::size_t i = tokens.size() - 1; i-- > 0;)
    if (tokens[i] == tokens.back()) return tokens[i + 1];
  return tokens.back();
}

class Server {
 public:
  Server() : plan_(make_plan()), waiting_(all_requests()), call_(longest_call) {
    const ttr::Footprint bytes = plan_.footprint(longest_call);
    state_.resize(bytes.state), work_.resize(bytes.workspace);
    check(plan_.reset(state()), "reset");
    std::reverse(waiting_.begin(), waiting_.end());  // the next is at the back
  }
  bool is_done() const {
    return waiting_.empty() && std::all_of(slot_.begin(), slot_.end(), [](const Request& r) { return r.number < 0; });
  }
  long rounds() const { return rounds_; }
  long taken_back() const { return taken_back_; }
  const std::vector<Request>& served() const { return served_; }

  void round() {
    for (int n = 0; n < slots; ++n)  // join
      if (slot(n).number < 0 && !waiting_.empty()) {
        slot(n) = waiting_.back();
        waiting_.pop_back();
        check(plan_.reset(state(), n), "reset of a slot");
      }
    call_.tokens = 0;
    std::vector<std::int64_t> begins = {0};
    std::vector<std::vector<int>> guessed(slots);
    for (int n = 0; n < slots; ++n) {
      const Request& r = slot(n);
      if (r.number >= 0 && !r.has_started) {
        for (const int token : r.tokens) call_.add(tables_, token);
      } else if (r.number >= 0) {
        call_.add(tables_, r.tokens.back());
        std::vector<int> text = r.tokens;
        for (int i = 0; i < guesses; ++i) {
          text.push_back(guess_after(text));
          guessed[static_cast<std::size_t>(n)].push_back(text.back());
          call_.add(tables_, text.back());
        }
      }
      begins.push_back(call_.tokens);
    }
    run(begins);
    for (int n = 0; n < slots; ++n)
      if (slot(n).number >= 0) read(n, begins[static_cast<std::size_t>(n) + 1], guessed[static_cast<std::size_t>(n)]);
    ++rounds_;
  }

  void save(const std::string& folder) const {
    ttr::save_state(folder + "/slots.safetensors", plan_, {state_.data(), state_.size()});
    std::ofstream file(folder + "/requests.txt");
    const auto write = [&](const char* where, const Request& r) {
      file << where << ' ' << r.number << ' ' << r.wanted << ' ' << r.prompt << ' ' << r.has_started << ' '
           << r.tokens.size();
      for (const int token : r.tokens) file << ' ' << token;
      file << '\n';
    };
    for (const Request& r : slot_) write("slot", r);
    for (const Request& r : waiting_) write("waiting", r);
    if (!file.flush()) std::fprintf(stderr, "decode: %s cannot be written\n", folder.c_str()), std::exit(1);
  }
  void load(const std::string& folder) {
    ttr::load_state(folder + "/slots.safetensors", plan_, state());
    std::ifstream file(folder + "/requests.txt");
    waiting_.clear();
    std::size_t count = 0;
    for (std::string where; file >> where;) {
      Request r;
      std::size_t size = 0;
      file >> r.number >> r.wanted >> r.prompt >> r.has_started >> size;
      r.tokens.resize(size);
      for (int& token : r.tokens) file >> token;
      if (where == "slot" && count < slots) slot_[count++] = r;
      else waiting_.push_back(r);
    }
    if (count != slots) std::fprintf(stderr, "decode: %s has no slots\n", folder.c_str()), std::exit(1);
  }

 private:
  static ttr::Plan make_plan() {
    ttr::Options options;
    options.rewind = guesses;
    return ttr::plan("gated-deltanet", {.batch = slots, .heads = heads, .key_dim = dim, .value_dim = dim}, options);
  }
  ttr::State state() { return {state_.data(), state_.size()}; }
  Request& slot(int n) { return slot_[static_cast<std::size_t>(n)]; }

  void run(const std::vector<std::int64_t>& begins) {
    const std::int64_t T = call_.tokens;
    ttr::Inputs in;
    in["q"] = ttr::view(call_.q.data(), 1, T, heads, dim);
    in["k"] = ttr::view(call_.k.data(), 1, T, heads, dim);
    in["v"] = ttr::view(call_.v.data(), 1, T, heads, dim);
    in["beta"] = ttr::view(call_.beta.data(), 1, T, heads);
    in["g"] = ttr::view(call_.g.data(), 1, T, heads);
    in.cu_seqlens = begins;
    ttr::Outputs out;
    out["o"] = ttr::view(call_.o.data(), 1, T, heads, dim);
    check(plan_.forward(in, state(), out, {work_.data(), work_.size()}), "forward");
  }

  // The tokens that the answers of slot n say, and the guesses that were wrong; `end` is behind its last answer.
  void read(int n, std::int64_t end, const std::vector<int>& guessed) {
    Request& r = slot(n);
    const auto tried = static_cast<std::int64_t>(guessed.size());
    std::int64_t right = 0;
    for (;;) {
      r.tokens.push_back(tables_.likeliest(call_.answer(end - 1 - tried + right)));
      const bool is_full = r.tokens.size() - r.prompt == r.wanted;
      if (right == tried || is_full || r.tokens.back() != guessed[static_cast<std::size_t>(right)]) break;
      ++right;
    }
    if (right < tried) {
      check(plan_.rewind(state(), n, tried - right), "rewind");
      taken_back_ += tried - right;
    }
    r.has_started = true;
    if (r.tokens.size() - r.prompt < r.wanted) return;
    std::printf("request %d:", r.number);  // leave
    for (std::size_t t = r.prompt; t < r.tokens.size(); ++t) std::printf(" %d", r.tokens[t]);
    std::printf("\n");
    served_.push_back(r);
    r = {};
  }

  ttr::Plan plan_;
  Tables tables_;
  std::vector<std::byte> state_, work_;
  std::vector<Request> waiting_, served_;
  std::vector<Request> slot_ = std::vector<Request>(slots);
  Call call_;
  long rounds_ = 0, taken_back_ = 0;
};

// The same request by itself, token after token.
std::vector<int> decoded_alone(const Request& served) {
  const Tables tables;
  ttr::Stream stream("gated-deltanet", {.heads = heads, .key_dim = dim, .value_dim = dim});
  std::vector<int> tokens(served.tokens.begin(), served.tokens.begin() + static_cast<std::ptrdiff_t>(served.prompt));
  for (std::size_t t = 0; tokens.size() < served.tokens.size(); ++t) {
    Call one(1);
    one.add(tables, tokens[t]);
    stream.push({one.q.data(), one.k.data(), one.v.data(), one.beta.data(), one.g.data()}, one.o.data());
    if (t + 1 == tokens.size()) tokens.push_back(tables.likeliest(one.answer(0)));
  }
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  long stop = -1;
  std::string save, resume;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (i + 1 == argc || (option != "--stop" && option != "--save" && option != "--resume")) {
      std::fprintf(stderr, "usage: decode [--stop ROUNDS --save FOLDER | --resume FOLDER]\n");
      return 2;
    }
    if (option == "--stop") stop = std::atol(argv[++i]);
    else (option == "--save" ? save : resume) = argv[++i];
  }
  try {
    Server server;
    if (!resume.empty()) server.load(resume);
    while (!server.is_done() && server.rounds() != stop) server.round();
    if (!save.empty()) server.save(save);
    for (const Request& request : server.served())
      if (decoded_alone(request) != request.tokens) {
        std::fprintf(stderr, "decode: request %d has other tokens alone\n", request.number);
        return 1;
      }
    std::fprintf(stderr, "%zu requests in %ld rounds, %ld guesses taken back; each as if alone\n",
                 server.served().size(), server.rounds(), server.taken_back());
  } catch (const ttr::Error& error) {
    std::fprintf(stderr, "decode: %s\n", error.what());
    return 1;
  }
}
