#include "cli/long_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>

namespace moecast::cli {
namespace {

std::atomic<bool> stop_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

std::atomic<std::time_t> stop_since{0};
static_assert(std::atomic<std::time_t>::is_always_lock_free, "set from a signal handler");

/// The first signal asks for the best so far; one that comes two seconds later or more ends the
/// program. Sooner ones are the same wish: timeout and srun signal a process and its group.
void want_stop(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!stop_wanted.exchange(true)) {
    stop_since = now.tv_sec;
  } else if (now.tv_sec - stop_since >= 2) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

std::function<void(double)> progress_bar() {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [last = -1](double fraction) mutable {
    const int percent = static_cast<int>(100 * fraction);
    if (percent == last) return;
    last = percent;
    const auto filled = static_cast<std::size_t>(percent * 40 / 100);
    const std::string bar =
        std::string(filled, '=') + std::string(40 - std::min<std::size_t>(filled, 40), ' ');
    fmt::print(stderr, "\r[{}] {:3} %{}", bar, percent, percent >= 100 ? "\r\033[K" : "");
    std::fflush(stderr);
  };
}

const std::atomic<bool>* stop_on_signal() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = want_stop;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  return &stop_wanted;
}

}  // namespace moecast::cli
