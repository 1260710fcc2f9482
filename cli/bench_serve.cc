// `ttr bench serve`: how many requests `ttr serve` answers, and how soon.
//
// Starts a server of its own in another process, on loopback, with a new folder; makes the models; then, on some connections
// that stay open, sends requests of one row each to the models in turn, and waits for every answer:
//
//   closed   a connection sends its next request when the answer is there: the most that the server answers
//   open     requests are due at a fixed rate and are sent on the next free connection; latency counts from the time when the
//            request was due, so that a server that stands still is charged for all that it kept waiting
//
// Client and server share the machine: the client's CPU time is given, and is not the server's to spend. In the end the
// server must have learned as many rows as were acknowledged. Bounded by counts and by a limit of time; nothing leaves the
// machine.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "json.h"
#include "progress.h"
#include "random.h"
#include "regress_parts.h"
#include "standard_files.h"
#include "text_table.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  throw Error(fmt::format("{}: {}", what, std::strerror(errno)), "ttr bench serve");
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// The server, in a folder that is deleted in the end.
class ServerProcess {
 public:
  explicit ServerProcess(const ServeBenchOptions& options) {
    char name[] = "/tmp/ttr-bench-serve-XXXXXX";
    if (!::mkdtemp(name)) fail("cannot make a folder");
    folder_ = name;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<std::string> words = {"ttr", "serve", folder_, "--port", "0", "--json"};
    if (options.sync) words.emplace_back("--sync");
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int error = ::posix_spawn(&child_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) errno = error, fail("cannot start the server");
    std::string line;
    char c;
    while (::read(ends[0], &c, 1) == 1 && c != '\n') line += c;
    ::close(ends[0]);
    const std::string url = Json::parse(line, "what the server printed").at("url").text();
    const std::string digits = url.substr(url.rfind(':') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), port_);
  }
  ~ServerProcess() {
    if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  int port() const { return port_; }
  // Asks it to save and end; returns its CPU seconds.
  double stop() {
    int status = 0;
    rusage use{};
    ::kill(child_, SIGTERM);
    ::wait4(child_, &status, 0, &use);
    child_ = 0;
    if (status != 0) throw Error(fmt::format("the server ended with status {}", status), "ttr bench serve");
    return seconds_of(use.ru_utime) + seconds_of(use.ru_stime);
  }

 private:
  std::string folder_;
  pid_t child_ = 0;
  int port_ = 0;
};

int connect_to(int port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (s < 0 || ::connect(s, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fail("cannot connect");
  const int one = 1;
  ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

std::string request_text(std::string_view method, std::string_view path, std::string_view body) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", method, path, body.size(),
                     body);
}

// Bytes of the response at the start of `text`; 0 while it is not complete.
std::size_t response_length(std::string_view text, int& status) {
  const std::size_t head = text.find("\r\n\r\n");
  if (head == text.npos) return 0;
  const std::string_view key = "Content-Length: ";
  const std::size_t at = text.substr(0, head).find(key);
  std::size_t length = 0;
  if (at != text.npos) std::from_chars(text.data() + at + key.size(), text.data() + head, length);
  std::from_chars(text.data() + 9, text.data() + 12, status);
  return text.size() >= head + 4 + length ? head + 4 + length : 0;
}

// One request, waiting for its answer; returns the body.
std::string ask(int socket, const std::string& request) {
  if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    fail("cannot send");
  std::string text;
  char block[1 << 14];
  int status = 0;
  for (;;) {
    const ssize_t n = ::recv(socket, block, sizeof block, 0);
    if (n <= 0) fail("the server closed the connection");
    text.append(block, static_cast<std::size_t>(n));
    if (response_length(text, status) == 0) continue;
    if (status >= 300)
      throw Error("the server answered: " + text.substr(text.find("\r\n\r\n") + 4), "ttr bench serve");
    return text.substr(text.find("\r\n\r\n") + 4);
  }
}

struct Run {
  std::string name;
  std::int64_t requests = 0, errors = 0;
  double seconds = 0, client_cpu = 0;
  std::vector<double> latencies;  // seconds, sorted in the end

  double quantile(double q) const {
    if (latencies.empty()) return std::nan("");
    return latencies[std::min(latencies.size() - 1,
                              static_cast<std::size_t>(q * static_cast<double>(latencies.size())))];
  }
};

class Load {
 public:
  Load(const ServeBenchOptions& options, int port) : options_(options), random_(7) {
    events_ = ::epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < options.connections; ++i) {
      connections_.push_back({connect_to(port), {}, {}, false});
      epoll_event event{};
      event.events = EPOLLIN, event.data.u32 = static_cast<std::uint32_t>(i);
      ::epoll_ctl(events_, EPOLL_CTL_ADD, connections_.back().socket, &event);
    }
    // Texts of rows are made before the clock starts.
    for (int i = 0; i < 997; ++i) {
      std::string body = "{";
      double sum = 0;
      for (int k = 0; k < options.keys; ++k) {
        const double x = random_.normal();
        sum += x * (k + 1);
        body += fmt::format("\"x{}\": {:.6f}, ", k + 1, x);
      }
      bodies_.push_back(body + fmt::format("\"y\": {:.6f}}}", sum + 0.1 * random_.normal()));
    }
  }
  ~Load() {
    for (const Connection& c : connections_) ::close(c.socket);
    ::close(events_);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // rate 0: closed.
  Run run(const std::string& name, std::int64_t count, double rate) {
    Run result;
    result.name = name;
    result.latencies.reserve(static_cast<std::size_t>(count));
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const Clock::time_point start = Clock::now(), limit = start + std::chrono::seconds(options_.limit);
    const auto due = [&](std::int64_t n) {
      return start +
             std::chrono::nanoseconds(rate > 0 ? static_cast<std::int64_t>(1e9 * static_cast<double>(n) / rate) : 0);
    };
    std::vector<std::uint32_t> free;
    for (std::size_t i = connections_.size(); i-- > 0;) free.push_back(static_cast<std::uint32_t>(i));
    std::int64_t sent = 0, answered = 0;
    std::vector<epoll_event> ready(connections_.size());
    while (answered < count && Clock::now() < limit && interrupted() == 0) {
      while (sent < count && !free.empty() && due(sent) <= Clock::now()) {
        Connection& c = connections_[free.back()];
        free.pop_back();
        c.since = rate > 0 ? due(sent) : Clock::now();
        send(c, sent++);
      }
      int wait = 1000;  // milliseconds
      if (sent < count && !free.empty())
        wait =
            std::max(0, static_cast<int>(
                            std::chrono::duration_cast<std::chrono::milliseconds>(due(sent) - Clock::now()).count()));
      const int n = ::epoll_wait(events_, ready.data(), static_cast<int>(ready.size()), wait);
      for (int i = 0; i < n; ++i) {
        const std::uint32_t which = ready[static_cast<std::size_t>(i)].data.u32;
        Connection& c = connections_[which];
        char block[1 << 14];
        const ssize_t bytes = ::recv(c.socket, block, sizeof block, MSG_DONTWAIT);
        if (bytes <= 0) fail("the server closed a connection");
        c.text.append(block, static_cast<std::size_t>(bytes));
        int status = 0;
        if (response_length(c.text, status) == 0) continue;
        result.latencies.push_back(std::chrono::duration<double>(Clock::now() - c.since).count());
        result.errors += status != 200;
        c.text.clear();
        ++answered;
        free.push_back(which);
      }
    }
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    ::getrusage(RUSAGE_SELF, &after);
    result.client_cpu = seconds_of(after.ru_utime) + seconds_of(after.ru_stime) - seconds_of(before.ru_utime) -
                        seconds_of(before.ru_stime);
    result.requests = answered;
    if (answered < count)
      throw Error(
          fmt::format("{} of {} requests were answered within {} seconds (--limit)", answered, count, options_.limit),
          "ttr bench serve");
    std::sort(result.latencies.begin(), result.latencies.end());
    return result;
  }

 private:
  struct Connection {
    int socket;
    std::string text;
    Clock::time_point since;
    bool busy;
  };
  void send(Connection& c, std::int64_t n) {
    const std::string& body = bodies_[static_cast<std::size_t>(n) % bodies_.size()];
    const std::string text = request_text("POST", fmt::format("/models/m{}/learn", n % options_.models), body);
    if (::send(c.socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      fail("cannot send");
  }

  const ServeBenchOptions& options_;
  SplitMix random_;
  int events_ = -1;
  std::vector<Connection> connections_;
  std::vector<std::string> bodies_;
};

std::int64_t rows_learned(int socket) {
  const std::string text = ask(socket, request_text("GET", "/metrics", ""));
  const std::string_view name = "\nttr_rows_learned_total ";
  const std::size_t at = text.find(name);
  std::int64_t rows = -1;
  if (at != text.npos) std::from_chars(text.data() + at + name.size(), text.data() + text.size(), rows);
  return rows;
}

Json run_json(const Run& run) {
  return Json::object()
      .set("name", run.name)
      .set("requests", run.requests)
      .set("errors", run.errors)
      .set("seconds", run.seconds)
      .set("requests_per_second", static_cast<double>(run.requests) / run.seconds)
      .set("p50_ms", 1e3 * run.quantile(0.5))
      .set("p99_ms", 1e3 * run.quantile(0.99))
      .set("p999_ms", 1e3 * run.quantile(0.999))
      .set("max_ms", 1e3 * run.quantile(1))
      .set("client_cpu_seconds", run.client_cpu);
}

int bench_serve(ServeBenchOptions options) {
  if (options.quick) options.models = 20, options.requests = 2000, options.rate = 1000, options.seconds = 1;
  const auto range = [](double number, double low, double high, const char* option) {
    if (!(number >= low && number <= high))
      throw Error(fmt::format("{} {} is out of range; give {} to {}", option, number, low, high), option);
  };
  range(options.models, 1, 10000, "--models");
  range(options.keys, 1, 1000, "--keys");
  range(options.connections, 1, 500, "--connections");
  range(static_cast<double>(options.requests), 1, 1e8, "--requests");
  range(options.rate, 1, 1e6, "--rate");
  range(options.seconds, 0.01, 600, "--seconds");
  range(options.limit, 1, 3600, "--limit");
  ServerProcess server(options);
  const int control = connect_to(server.port());
  Json keys = Json::array();
  for (int k = 0; k < options.keys; ++k) keys.push(fmt::format("x{}", k + 1));
  const std::string model = Json::object()
                                .set("keys", keys)
                                .set("values", Json::array().push("y"))
                                .set("layers", Json::array().push(options.layer))
                                .dump(-1);
  for (int m = 0; m < options.models; ++m) ask(control, request_text("PUT", fmt::format("/models/m{}", m), model));
  std::vector<Run> runs;
  {
    Load load(options, server.port());
    // Units are taken anew, and all rows learned again, after rows 1, 2, 4, .. of a model: what follows is the long run.
    load.run("warm-up", std::min<std::int64_t>(options.requests, 20 * options.models), 0);
    const std::int64_t before = rows_learned(control);
    runs.push_back(load.run("closed", options.requests, 0));
    runs.push_back(load.run("open", static_cast<std::int64_t>(options.rate * options.seconds), options.rate));
    std::int64_t acknowledged = 0;
    for (const Run& run : runs) acknowledged += run.requests - run.errors;
    if (const std::int64_t rows = rows_learned(control) - before; rows != acknowledged)
      throw Error(fmt::format("{} rows were acknowledged, and the server has learned {}", acknowledged, rows),
                  "ttr bench serve");
  }
  ::close(control);
  const double server_cpu = server.stop();
  if (options.json) {
    Json list = Json::array();
    for (const Run& run : runs) list.push(run_json(run));
    print_out(Json::object()
                  .set("models", options.models)
                  .set("keys", options.keys)
                  .set("layer", options.layer)
                  .set("connections", options.connections)
                  .set("sync", options.sync)
                  .set("server_cpu_seconds", server_cpu)
                  .set("runs", list)
                  .dump(2) +
              "\n");
  } else {
    TextTable table(
        {"load", "requests", "per second", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "errors", "client CPU s"});
    for (const Run& run : runs)
      table.row({run.name == "open" ? fmt::format("open, {} per second", options.rate) : run.name,
                 fmt::format("{}", run.requests),
                 fmt::format("{:.0f}", static_cast<double>(run.requests) / run.seconds),
                 fmt::format("{:.3f}", 1e3 * run.quantile(0.5)), fmt::format("{:.3f}", 1e3 * run.quantile(0.99)),
                 fmt::format("{:.3f}", 1e3 * run.quantile(0.999)), fmt::format("{:.3f}", 1e3 * run.quantile(1)),
                 fmt::format("{}", run.errors), fmt::format("{:.2f}", run.client_cpu)});
    print_out(fmt::format(
        "{} of {} with {}, {}; one row learned per request. The server used {:.2f} s of CPU in all.\n\n{}",
        counted(options.models, "model"), options.layer, counted(options.keys, "key"),
        counted(options.connections, "connection"), server_cpu, table.text()));
  }
  std::int64_t errors = 0;
  for (const Run& run : runs) errors += run.errors;
  return errors == 0 ? 0 : 1;
}

}  // namespace

int run_bench_serve(ServeBenchOptions options) {
  const InterruptGuard guard;
  try {
    return bench_serve(std::move(options));
  } catch (const Error&) {
    if (interrupted() == 0) throw;
    tell("ttr: interrupted; nothing was complete\n");
    return 128 + interrupted();
  }
}

}  // namespace ttr::cli
