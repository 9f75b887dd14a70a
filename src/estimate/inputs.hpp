#pragma once
/// Inputs that many problems share.

namespace moecast {

/// While one lives, make_problem of this thread reads every model, system, profile and stack once,
/// however often it is asked: a sweep's points see the same files.
class SharedInputs {
 public:
  SharedInputs();
  ~SharedInputs();
  SharedInputs(const SharedInputs&) = delete;
  SharedInputs& operator=(const SharedInputs&) = delete;
};

}  // namespace moecast
