#include "cli/interrupt.hpp"

#include <csignal>

namespace moecast::cli {
namespace {

std::atomic<bool> stop_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

void want_stop(int) { stop_wanted = true; }

}  // namespace

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
