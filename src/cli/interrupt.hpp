#pragma once
/// Ctrl-C and SIGTERM as a wish to stop, for commands that can answer with what they have so far.
#include <atomic>

namespace moecast::cli {

/// From the first call on, SIGINT and SIGTERM set the flag instead of ending the program; a second
/// one ends it. Signals that the caller ignores (nohup) stay ignored.
const std::atomic<bool>* stop_on_signal();

}  // namespace moecast::cli
