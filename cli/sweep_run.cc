// The children of a sweep. Each is this program with the words of `ttr train`; its answers go to files beside the result.
//
// A child has a process group of its own, so that Ctrl-C reaches the sweep alone, which ends its children and waits for
// them; if the sweep itself is killed, the system ends them (PR_SET_PDEATHSIG).
//
// The ranks of MPI work through the same list in the same folder: who makes the file KEY.claim has the run. A rank that is
// told to end makes the file STOP, and the others end as well. Then the first rank reads the results of all.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atomic_file.h"
#include "progress.h"
#include "ranks.h"
#include "shell.h"
#include "sweep.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

pid_t start(const std::vector<std::string>& words, const fs::path& answer, const fs::path& complaint) {
  std::vector<char*> arguments;
  std::string program = "ttr";
  arguments.push_back(program.data());
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child > 0) return child;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it ended before the request
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) signal(number, SIG_DFL);
  forget_ranks();
  const int in = open("/dev/null", O_RDONLY);
  const int out = open(answer.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int err = open(complaint.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (in < 0 || out < 0 || err < 0) _exit(1);
  dup2(in, STDIN_FILENO), dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
  execv("/proc/self/exe", arguments.data());
  _exit(1);
}

struct Child {
  pid_t pid = 0;
  std::size_t run = 0;
  bool evaluates = false;  // the second process of a run
  std::chrono::steady_clock::time_point since;
};

class Children {
 public:
  Children(const std::vector<SweepRun>& runs, const fs::path& folder, bool quiet)
      : runs_(runs), folder_(folder), results_(runs.size()), bar_("sweep", !quiet) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      results_[i].run = runs[i];
      if (!read(i)) waiting_.push_back(i);
    }
    total_ = waiting_.size();
    if (ranks().count() == 1) return;
    ranks().patience = 0;  // a run may take as long as it likes
    std::error_code ignored;
    if (ranks().first()) {  // of a sweep that was stopped
      for (const std::size_t run : waiting_) fs::remove(file(run, ".claim"), ignored);
      fs::remove(folder_ / "STOP", ignored);
    }
    ranks().wait();
  }

  std::vector<SweepResult> go(int jobs) {
    const InterruptGuard guard;
    std::reverse(waiting_.begin(), waiting_.end());
    try {
      while (!waiting_.empty() || !running_.empty()) {
        while (!stopped() && !waiting_.empty() && static_cast<int>(running_.size()) < jobs) {
          const std::size_t run = waiting_.back();
          waiting_.pop_back();
          if (claim(run)) begin(run);
        }
        if (stopped()) break;
        collect();
        bar_.update(static_cast<double>(done_), static_cast<double>(total_),
                    fmt::format("{} of {} runs, {} running", done_, total_, running_.size()));
        pollfd wake{interrupt_descriptor(), POLLIN, 0};
        poll(&wake, 1, running_.empty() ? 0 : 20);
      }
    } catch (...) {
      end_all();
      throw;
    }
    end_all();
    if (ranks().count() > 1) meet();
    bar_.finish();
    return std::move(results_);
  }

 private:
  fs::path file(std::size_t run, const char* ending) const { return folder_ / (runs_[run].key + ending); }

  // A result that is there already, of these very settings.
  bool read(std::size_t run) {
    const fs::path path = file(run, ".json");
    if (!fs::exists(path)) return false;
    const Json saved = Json::parse(contents(path), path.string());
    const Json settings = saved.at("settings");
    if (settings.size() != runs_[run].settings.size()) return false;
    for (const auto& [name, value] : runs_[run].settings)
      if (name != "threads" && settings.at(name).text() != value) return false;
    results_[run].saved = saved, results_[run].result = saved.at("result"),
    results_[run].failed = saved.at("failed").text();
    return true;
  }

  // Whether this rank, or another, was told to end.
  bool stopped() {
    if (interrupted() || stopped_ || ranks().count() == 1) return interrupted() || stopped_;
    const Clock::time_point now = Clock::now();
    if (now - looked_ < std::chrono::milliseconds(200)) return false;
    looked_ = now;
    return stopped_ = fs::exists(folder_ / "STOP");
  }

  // All ranks, when there is nothing left to do or they are to end: until then this one watches the folder, where a collective
  // call could not be left.
  void meet() {
    const auto missing = [&] {
      return std::any_of(runs_.begin(), runs_.end(), [&](const SweepRun& run) {
        const auto i = static_cast<std::size_t>(&run - runs_.data());
        return results_[i].saved.is_null() && !read(i);
      });
    };
    while (!stopped() && missing()) {
      ranks().look();
      bar_.update(static_cast<double>(done_), static_cast<double>(total_), "waiting for other ranks");
      pollfd wake{interrupt_descriptor(), POLLIN, 0};
      poll(&wake, 1, 200);
    }
    std::error_code ignored;
    if (stopped()) std::ofstream(folder_ / "STOP").flush();
    ranks().wait();
    for (std::size_t i = 0; i < runs_.size() && ranks().first(); ++i) read(i);
    if (ranks().first()) fs::remove(folder_ / "STOP", ignored);
  }

  // Whether this rank is to do the run.
  bool claim(std::size_t run) {
    if (ranks().count() == 1) return true;
    const int file_of_claim = open(file(run, ".claim").c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file_of_claim < 0 && errno == EEXIST) return false;
    if (file_of_claim < 0)
      throw Error(fmt::format("the file '{}' cannot be made: {}", file(run, ".claim").string(), std::strerror(errno)),
                  "--out");
    close(file_of_claim);
    if (!read(run)) return true;  // another rank may have done it, and taken its claim away
    std::error_code ignored;
    fs::remove(file(run, ".claim"), ignored);
    return false;
  }

  void begin(std::size_t run) {
    std::vector<std::string> words = train_words(runs_[run].settings);
    if (!runs_[run].eval.empty()) words.insert(words.end(), {"--out", file(run, "").string()});
    running_.push_back({start(words, file(run, ".out"), file(run, ".err")), run, false, Clock::now()});
  }

  void collect() {
    for (std::size_t i = 0; i < running_.size();) {
      int status = 0;
      const pid_t ended = waitpid(running_[i].pid, &status, WNOHANG);
      if (ended == 0) {
        ++i;
        continue;
      }
      const Child child = running_[i];
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      finish(child, status);
    }
  }

  void finish(const Child& child, int status) {
    const std::size_t run = child.run;
    SweepResult& result = results_[run];
    const std::string complaint = contents(file(run, ".err"));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::string why, where;
      if (complaint.find('{') != std::string::npos) {
        const Json error = Json::parse(complaint.substr(complaint.find('{')), "the error").at("error");
        why = error.at("message").text(), where = error.at("where").text();
      }
      if (why.empty())
        why = WIFSIGNALED(status) ? fmt::format("it was ended by signal {}", WTERMSIG(status))
                                  : fmt::format("it ended with the code {}", WEXITSTATUS(status));
      clean(run);
      if (!where.starts_with("step"))
        throw Error(fmt::format("{} (of the run `{}`)", why, shell_command(train_words(runs_[run].settings))), where);
      result.failed = why;
    } else if (child.evaluates) {
      result.result.set("eval", Json::parse(contents(file(run, ".out")), "the answer of ttr eval"));
    } else {
      result.result = Json::parse(contents(file(run, ".out")), "the answer of ttr train");
      if (!runs_[run].eval.empty()) {
        std::vector<std::string> words{"eval", file(run, "").string(), "--json"};
        for (const std::string& word : split_words(runs_[run].eval)) words.push_back(word);
        running_.push_back({start(words, file(run, ".out"), file(run, ".err")), run, true, child.since});
        return;
      }
    }
    const std::chrono::duration<double> seconds = Clock::now() - child.since;
    Json settings = Json::object();
    for (const auto& [name, value] : runs_[run].settings) settings.set(name, value);
    Json saved =
        Json::object().set("settings", settings).set("command", shell_command(train_words(runs_[run].settings)));
    saved.set("date", now_text()).set("seconds", seconds.count());
    if (result.failed.empty()) saved.set("result", result.result);
    else saved.set("failed", result.failed);
    result.saved = saved;
    write_file(file(run, ".json").string(), "--out", saved.dump() + "\n");
    clean(run);
    ++done_;
  }

  static std::vector<std::string> split_words(const std::string& text) {
    std::vector<std::string> words(1);
    for (const char c : text) {
      if (c != ' ') words.back() += c;
      else if (!words.back().empty()) words.emplace_back();
    }
    return words;
  }

  void clean(std::size_t run) {
    std::error_code ignored;
    for (const char* ending : {".out", ".err", "", ".claim"}) fs::remove_all(file(run, ending), ignored);
  }

  void end_all() {
    for (const Child& child : running_) kill(child.pid, SIGTERM);
    for (const Child& child : running_) {
      while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      clean(child.run);
    }
    running_.clear();
  }

  using Clock = std::chrono::steady_clock;
  const std::vector<SweepRun>& runs_;
  fs::path folder_;
  std::vector<SweepResult> results_;
  std::vector<std::size_t> waiting_;
  std::vector<Child> running_;
  std::size_t done_ = 0, total_ = 0;
  bool stopped_ = false;
  Clock::time_point looked_{};
  Progress bar_;
};

std::vector<std::string> steps_of(const std::string& path) {
  std::vector<std::string> names(1);
  for (const char c : path) {
    if (c == '.') names.emplace_back();
    else names.back() += c;
  }
  return names;
}

}  // namespace

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

double SweepResult::number(const std::string& name) const {
  Json at = result;
  for (const std::string& one : steps_of(name)) at = at.at(one);
  if (!at.is_null()) return at.number();
  const Json rows = result.at("rows");
  return rows.size() ? rows.at(rows.size() - 1).at(name).number() : std::nan("");
}

std::vector<double> SweepResult::list(const std::string& path) const {
  std::vector<std::string> names = steps_of(path);
  const std::string last = names.back();
  names.pop_back();
  Json at = result;
  for (const std::string& one : names) at = at.at(one);
  std::vector<double> numbers;
  for (std::size_t i = 0; i < at.size(); ++i) numbers.push_back(at.at(i).at(last).number());
  return numbers;
}

std::vector<SweepResult> run_children(const std::vector<SweepRun>& runs, const std::string& folder, int jobs,
                                      bool quiet) {
  std::error_code error;
  const fs::path above = fs::path(folder).parent_path();
  const bool was_there = fs::exists(above), made = fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw Error(fmt::format("the folder '{}' cannot be made: {}", folder, error.message()), "--out");
  try {
    return Children(runs, folder, quiet).go(jobs);
  } catch (...) {  // settings that are no run leave nothing behind
    if (made && fs::remove(folder, error) && !was_there) fs::remove(above, error);
    throw;
  }
}

}  // namespace ttr::cli
