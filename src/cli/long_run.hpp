#pragma once
/// What commands that take a while share: a bar, and a clean stop.
#include <atomic>
#include <functional>

namespace moecast::cli {

/// A bar on stderr, only where somebody can see it; redrawn when the percentage changes.
std::function<void(double)> progress_bar();

/// From the first call on, SIGINT and SIGTERM set the flag instead of ending the program, so that a
/// command can answer with what it has; a second one ends it. Signals that the caller ignores
/// (nohup) stay ignored.
const std::atomic<bool>* stop_on_signal();

}  // namespace moecast::cli
