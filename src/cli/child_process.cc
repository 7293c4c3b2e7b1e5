// SPDX-License-Identifier: Apache-2.0

#include "cli/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gapless {
namespace {

constexpr std::array<int, 4> kHandledSignals = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

// A signal handler can reach nothing but globals.
volatile pid_t running_child = 0;

// The terminal sends Ctrl-C to the whole foreground group, so the child has it already; a signal
// from a process (SI_USER) came to us alone.
void pass_on(int signal, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const bool from_terminal = info->si_code > 0;
  if (running_child > 0 && !from_terminal) ::kill(running_child, signal);
  errno = saved_errno;
}

// Handles the signals while it lives. They are held back until unblock(), so that none comes
// between the fork and the moment when the child is known.
class SignalGuard {
 public:
  SignalGuard() {
    sigset_t handled;
    ::sigemptyset(&handled);
    for (const int signal : kHandledSignals) ::sigaddset(&handled, signal);
    ::pthread_sigmask(SIG_BLOCK, &handled, &saved_mask_);
    struct sigaction action = {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (size_t i = 0; i < kHandledSignals.size(); ++i) {
      ::sigaction(kHandledSignals[i], &action, &saved_[i]);
    }
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard() { restore(); }
  void unblock() const { ::pthread_sigmask(SIG_SETMASK, &saved_mask_, nullptr); }
  void restore() const {
    for (size_t i = 0; i < kHandledSignals.size(); ++i) {
      ::sigaction(kHandledSignals[i], &saved_[i], nullptr);
    }
    unblock();
  }

 private:
  sigset_t saved_mask_ = {};
  std::array<struct sigaction, kHandledSignals.size()> saved_ = {};
};

// In the child. Does not return; an error goes through the pipe.
[[noreturn]] void become(const std::vector<std::string>& command,
                         const std::vector<EnvironmentVariable>& environment, int error_pipe) {
  ::signal(SIGPIPE, SIG_DFL);
  for (const EnvironmentVariable& variable : environment) {
    ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  const ssize_t written = ::write(error_pipe, &error, sizeof(error));
  ::_exit(written == static_cast<ssize_t>(sizeof(error)) ? 127 : 126);
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

Error start_error(const std::string& program, int error) {
  if (error == ENOENT) {
    return fail(ErrorCode::kSystem, "{}: no such program", program);
  }
  return fail(ErrorCode::kSystem, "{}: cannot run: {}", program, std::strerror(error));
}

}  // namespace

Result<ProgramExit> run_program(const std::vector<std::string>& command,
                                const std::vector<EnvironmentVariable>& environment) {
  std::array<int, 2> pipe_ends = {};
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return start_error(command[0], errno);
  const SignalGuard signals;
  const pid_t child = ::fork();
  if (child == 0) {
    signals.restore();
    become(command, environment, pipe_ends[1]);
  }
  const int fork_error = errno;
  ::close(pipe_ends[1]);
  if (child < 0) {
    ::close(pipe_ends[0]);
    return start_error(command[0], fork_error);
  }
  running_child = child;
  signals.unblock();
  // Ends without a byte when exec succeeds: the pipe closes itself then.
  int exec_error = 0;
  ssize_t count = 0;
  do {
    count = ::read(pipe_ends[0], &exec_error, sizeof(exec_error));
  } while (count < 0 && errno == EINTR);
  ::close(pipe_ends[0]);
  const int status = wait_for(child);
  running_child = 0;
  if (count == static_cast<ssize_t>(sizeof(exec_error))) return start_error(command[0], exec_error);
  if (WIFSIGNALED(status)) return ProgramExit{128 + WTERMSIG(status), WTERMSIG(status)};
  return ProgramExit{WEXITSTATUS(status), 0};
}

}  // namespace gapless
