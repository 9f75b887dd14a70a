#include "cli/long_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace moecast::cli {
namespace {

std::atomic<bool> stop_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

void want_stop(int) { stop_wanted = true; }

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
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  return &stop_wanted;
}

}  // namespace moecast::cli
