// A call that the filter stops becomes a signal, whose handler counts; the call itself is not made and returns nothing
// useful, so that work which needs one goes wrong, which is no harm in a child. Allowed are the end of a handler, the report
// over the pipe and the end of the process. Reading the clock is a system call only where the kernel gives no shared page.
#include "system_calls.h"

#include "sanitized.h"

#if defined(__linux__) && !defined(TTR_SANITIZED)
#define TTR_COUNTS_SYSTEM_CALLS 1
#endif

#ifdef TTR_COUNTS_SYSTEM_CALLS
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#endif

namespace ttr::cli {

#ifdef TTR_COUNTS_SYSTEM_CALLS
namespace {

// Work that waits for a call which is never made ends with the child, after this many seconds.
constexpr unsigned patience = 300;

volatile long stopped = 0;
volatile int last_stopped = -1;

extern "C" void on_stopped_call(int, siginfo_t* info, void*) {
  stopped = stopped + 1;
  last_stopped = info->si_syscall;
}

// 0, or the error number.
int install_filter() {
  struct sigaction action {};
  action.sa_sigaction = on_stopped_call;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return errno;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 ? 0 : errno;
}

struct Report {
  int error;  // of install_filter
  SystemCalls calls;
};

}  // namespace

std::optional<SystemCalls> count_system_calls(const std::function<void()>& work, std::string& why) {
  int ends[2];
  if (pipe(ends) != 0) {
    why = std::string("no pipe: ") + std::strerror(errno);
    return std::nullopt;
  }
  const pid_t child = fork();
  if (child < 0) {
    why = std::string("no process: ") + std::strerror(errno);
    close(ends[0]), close(ends[1]);
    return std::nullopt;
  }
  if (child == 0) {
    close(ends[0]);
    signal(SIGALRM, SIG_DFL);
    alarm(patience);
    Report report{install_filter(), {}};
    if (report.error == 0) {
      work();
      report.calls = {stopped, last_stopped};
    }
    const bool sent = write(ends[1], &report, sizeof report) == sizeof report;
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  Report report{0, {}};
  std::size_t got = 0;
  while (got < sizeof report) {
    const ssize_t n = read(ends[0], reinterpret_cast<char*>(&report) + got, sizeof report - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (got < sizeof report) {
    why = WIFSIGNALED(status) ? std::string("the child ended by ") + strsignal(WTERMSIG(status))
                              : std::string("the child did not report");
    return std::nullopt;
  }
  if (report.error != 0) {
    why = std::string("the system refuses the filter: ") + std::strerror(report.error);
    return std::nullopt;
  }
  return report.calls;
}
#else
std::optional<SystemCalls> count_system_calls(const std::function<void()>&, std::string& why) {
#ifdef TTR_SANITIZED
  why = "the sanitizer of this build makes system calls of its own";
#else
  why = "only Linux has the filter that counts them";
#endif
  return std::nullopt;
}
#endif

}  // namespace ttr::cli
